"""The pytest suite: one item for each expectation, named `CHECK[TARGET]`.

`gpucluster validate` runs it, and so does pytest alone:
    pytest -p gpucluster.validate.suite.plugin --pyargs gpucluster.validate.suite --plan plan.json --enter 'PROGRAM {machine} --'
"""
