"""The AWS APIs of the sandbox: a front end before moto, and a folder for each service that the sandbox answers itself."""
