"""The model of a finished run in use: loaded, evaluated, asked about images, and exported."""
