"""Runs job local_upper as a FLARE recipe: in the simulator, with --poc, or --kit KIT."""

from fedward.flare.jobs.recipes import main
from fedward.lab.simulation import entered_sites

if __name__ == "__main__":
    main("local_upper", entered_sites)
