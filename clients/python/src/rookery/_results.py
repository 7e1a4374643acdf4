"""Results of commands."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ._error import ExecutionFailed

#: Most characters of the error output in the message of a `CommandFailed`.
MESSAGE_CHARACTERS = 2000
#: Most characters of an output in the representation of a result.
SHOWN_CHARACTERS = 200


class CommandResult(Dict[str, Any]):
    """Result of a command that has ended: the fields of the answer, which are also attributes."""

    @property
    def returncode(self) -> int:
        """Exit code; -1 if the time limit ended the command."""
        code: int = self["returncode"]
        return code

    @property
    def stdout(self) -> str:
        text: str = self["stdout"]
        return text

    @property
    def stderr(self) -> str:
        text: str = self["stderr"]
        return text

    @property
    def truncated(self) -> bool:
        """True if the service cut the output."""
        return bool(self["truncated"])

    @property
    def timed_out(self) -> bool:
        """True if the time limit ended the command."""
        return bool(self["timed_out"])

    @property
    def warnings(self) -> List[str]:
        """Warnings of the service about the request."""
        found: List[str] = self.get("warnings", [])
        return found

    def check(self) -> CommandResult:
        """Returns the result itself. Fails with `CommandFailed` if the exit code is not 0."""
        if self.returncode != 0:
            raise CommandFailed(self)
        return self

    def __repr__(self) -> str:
        """Returns the exit code and the outputs. A long output loses its middle."""
        flags = "".join(", %s=True" % name for name in ("truncated", "timed_out") if self.get(name))
        outputs = (self.returncode, _shown(self.stdout), _shown(self.stderr), flags)
        return "CommandResult(returncode=%d, stdout=%r, stderr=%r%s)" % outputs


class CommandFailed(ExecutionFailed):
    """A command ended with another exit code than 0, which `CommandResult.check` reports."""

    result: CommandResult

    def __init__(self, result: CommandResult) -> None:
        ended = "the command ended with exit code %d" % result.returncode
        what = "the time limit ended the command" if result.timed_out else ended
        said = result.stderr.strip()
        end = "\u2026" + said[-MESSAGE_CHARACTERS:] if len(said) > MESSAGE_CHARACTERS else said
        super().__init__("%s: %s" % (what, end) if end else what, status=200)
        self.result = result

    @property
    def returncode(self) -> int:
        """Exit code of the command; -1 if the time limit ended it."""
        return self.result.returncode

    @property
    def stderr(self) -> str:
        """Whole error output of the command, as far as the service returned it."""
        return self.result.stderr

    def __reduce__(self) -> Tuple[Any, ...]:
        """Returns what makes a copy, such as in another process."""
        return type(self), (self.result,)


def _shown(text: str) -> str:
    half = SHOWN_CHARACTERS // 2
    return text if len(text) <= SHOWN_CHARACTERS else text[:half] + "\u2026" + text[-half:]
