"""The rows, one module for each part of the cloud. A new type is a row here and a line in `table`."""
