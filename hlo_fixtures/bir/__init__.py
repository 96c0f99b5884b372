"""Golden BIR programs: lowered quantize calls whose JSON is committed."""
