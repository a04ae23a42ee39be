"""The resource types, one module for each AWS service. A new type is a row here and a line in `table`."""
