"""FLARE's own FedAvg, as a recipe in its simulator with a thread for every site."""

import sys
from pathlib import Path

import work
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv

if __name__ == "__main__":
    script = Path(__file__).with_name("flare_client.py")
    job = work.experiment()
    arguments = {"classes": len(job.data.classes), "channels": job.data.channels}
    model = {"class_path": "fedward.nets.small_cnn_gn.SmallCNNGN", "args": arguments}
    recipe = FedAvgRecipe(
        model=model, min_clients=work.TRAINING, num_rounds=work.ROUNDS, train_script=str(script)
    )
    recipe.execute(
        SimEnv(num_clients=work.SITES, num_threads=work.SITES, workspace_root=sys.argv[1])
    )
