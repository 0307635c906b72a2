"""Weights that live elsewhere: fetched without hanging, without running code, and with one sentence if out of reach."""

from __future__ import annotations

import logging
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from eyechart.errors import EyechartError, HubUnreachable, SubjectError, UnknownSubject, UnsafeWeights

#: Seconds to wait for a first answer; left to itself, huggingface_hub retried for 46 s where there is no network.
PATIENCE = 5


@contextmanager
def hub_access(spec: str, advice: str, *, huggingface: bool) -> Iterator[None]:
    """Inside, libraries may download. Network failures leave as HubUnreachable with `advice`; pickles run no code."""
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    timeout = socket.getdefaulttimeout()
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    socket.setdefaulttimeout(PATIENCE * 2)
    try:
        with without_retries() if huggingface else nullcontext():
            yield
    except EyechartError:
        raise
    except Exception as error:
        raise _translate(error, spec, advice) from error
    finally:
        socket.setdefaulttimeout(timeout)
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before


@contextmanager
def without_retries() -> Iterator[None]:
    """Inside, the library of the Hugging Face hub neither waits for a hub that does not answer nor prints its retries.

    It is put offline for the while, so that what is in its cache still loads.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import logging as its_logging

    before, verbosity = constants.HF_HUB_OFFLINE, its_logging.get_verbosity()
    constants.HF_HUB_OFFLINE = before or not _answers(constants.ENDPOINT)
    its_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
        its_logging.set_verbosity(verbosity)


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return True  # it said no, but it spoke
    except OSError:
        return False
    return True


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _translate(error: Exception, spec: str, advice: str) -> SubjectError:
    """One sentence for what went wrong on the way to the weights."""
    from huggingface_hub import errors

    chain = list(_chain(error))
    if any(isinstance(link, errors.GatedRepoError) for link in chain):
        return SubjectError(f"The hub gives {spec} only after a login and an accepted licence: {advice}")
    if any(isinstance(link, errors.RepositoryNotFoundError) for link in chain):
        return UnknownSubject(f"The hub has no public model {spec}: check its name, or {advice}")
    network = (urllib.error.URLError, ConnectionError, TimeoutError, socket.gaierror, errors.LocalEntryNotFoundError)
    for link in chain:
        from_library = type(link).__module__.startswith(("httpx", "httpcore", "requests", "urllib3"))
        if isinstance(link, network) or from_library:
            return HubUnreachable(f"The weights of {spec} are on a hub that cannot be reached from here: {advice}")
    if any("weights_only" in str(link) or "trust_remote_code" in str(link) for link in chain):
        return UnsafeWeights(f"{spec} would run code when loaded, and was not loaded: {advice}")
    return SubjectError(
        f"{spec} cannot be loaded ({type(error).__name__}: {str(error).strip().partition(chr(10))[0]})."
    )
