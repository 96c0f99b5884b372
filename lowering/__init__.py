"""From StableHLO and HLO modules with MX calls to what the hardware compiler takes."""
