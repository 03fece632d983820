"""Job oneshot as a FLARE recipe: in the simulator, or with --poc or --kit KIT; see --help."""

from fedward.flare.jobs.recipes import main

if __name__ == "__main__":
    main("oneshot")
