"""Runs job fedperl_few_sites as a FLARE recipe: in the simulator, with --poc, or --kit KIT."""

from fedward.flare.jobs.recipes import main

if __name__ == "__main__":
    main("fedperl_few_sites")
