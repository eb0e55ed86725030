"""Replays a run that nodes made in real time, in a simulation: `python replay.py runs/in-real-time runs/replayed`."""

import sys

import fedsash as fs
from fedsash.flower import RealTime
from fedsash.network import Asynchronous

served, out = sys.argv[1:]
experiment = fs.load(f"{served}/config.toml")
time = RealTime(limit=2, replay=served)  # the limit with which it was served
driver = Asynchronous(experiment.federation(), time, experiment.scheduler)
fs.run(driver, experiment.rounds, out=out, **experiment.settings(driver))
