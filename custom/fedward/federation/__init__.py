"""The way between server and sites: driver, wire list, stores, run folder, and the engines."""
