"""GlassBERT on a Ray cluster: parts of a job or of a corpus made by its workers, and a deployment for Ray Serve.

Ray does the scheduling and the retries. Ours are a function over pieces of files (`pieces.py`), one over units of a
corpus (`corpus.py`) and one over requests (`deployment.py`). Ray is imported when one of them is called.
"""
