"""Watching Dynamo: everything that touches its internals, one concern per module.

`calls` holds the log of the call that is running; `frames` sees every frame that Dynamo looks at
(private API, torch releases we know) and `public` is the same watcher on public API alone; `marker`
makes a compiled specialisation say that it runs; `breaks` parses what Dynamo says about a break;
`tracing` is the environment in which frames are traced; `backends` counts graphs; `errors` tells
Dynamo's exceptions apart. Nothing here imports torch when it is imported.
"""
