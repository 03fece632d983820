"""Job survey as a recipe of NVIDIA FLARE: in its simulator, or with --poc or --kit KIT; see --help."""

from fedward.flare.jobs.recipes import FedwardRecipe, environment, execute, options
from fedward.jobs import load_experiment

if __name__ == "__main__":
    chosen = options()
    experiment = load_experiment("survey", chosen.set, clinical=chosen.policy)
    recipe = FedwardRecipe(experiment, "survey", chosen.tracking)
    print(execute(recipe, environment(chosen, experiment)) / "report.html")
