"""Files written by other libraries, and the tests that read them."""
