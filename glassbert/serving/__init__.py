"""Models behind HTTP: `glassbert serve RUN...`.

    body -> checked request -> Examples -> Batcher (rows of similar length, any request) -> model -> answers -> JSON

listening   sockets and headers that every server of the package shares
models      what is served: one copy of the weights for all kinds of answers and all threads; reloading
work        a request as rows of tokens, a batch of rows from several requests, and answers from their outputs
batching    the queue, and the threads that compute
bodies      JSON bodies of requests, checked
answers     an endpoint for every kind of answer
app         addresses, keys, limits, errors, logs and metrics: an ASGI application
server      uvicorn with time limits for slow clients, and a shutdown that loses no request
"""
