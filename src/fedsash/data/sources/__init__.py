"""Where samples come from: arrays, files, published data sets, tables and texts."""
