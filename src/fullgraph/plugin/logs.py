"""Keep pytest's log capture from switching on structured tracing in torch.

pytest attaches its handlers to every logger that does not propagate. One of these is
``torch.__trace``: as soon as it has a handler, Dynamo writes a structured trace of every compile.
"""

from __future__ import annotations

import logging

__all__ = ["detach_pytest_handlers"]


def detach_pytest_handlers() -> None:
    """Take pytest's handlers off torch's trace logger; any other handler stays.

    They are attached anew in each phase of each test, and pytest removes its handlers by identity
    afterwards, so that nothing is left to be restored.
    """
    logger = logging.root.manager.loggerDict.get("torch.__trace")
    if not isinstance(logger, logging.Logger):
        return
    for handler in list(logger.handlers):
        if type(handler).__module__.partition(".")[0] == "_pytest":
            logger.removeHandler(handler)
