"""A site of FLARE's own FedAvg: what its examples ask a user to write."""

import nvflare.client as flare
import work

flare.init()
net = work.network()
site = int(flare.get_site_name().rsplit("-", 1)[1]) - 1
while flare.is_running():
    received = flare.receive()
    net.load_state_dict(received.params)
    seen = work.train(net, site, received.current_round)
    flare.send(flare.FLModel(params=net.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": seen}))
