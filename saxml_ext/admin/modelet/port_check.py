"""Whether a model server can be reached, below gRPC.

A process that is busy, or stopped, does not answer calls, but the kernel of its
machine still takes connections for it. So these three can be told apart.
"""

import asyncio
import enum


class Reach(enum.Enum):
  """What became of a TCP connection."""

  TAKEN = 'taken'  # The process is there, whether or not it answers calls.
  REFUSED = 'refused'  # Nobody listens: it has ended.
  NO_ANSWER = 'no answer'  # The machine is off, or cut off.


async def probe(address: str, timeout: float) -> Reach:
  """Connects to "host:port" and hangs up.

  Args:
    address: the host may be an IPv6 address in brackets.
    timeout: seconds without an answer that count as none.

  Returns:
    What became of it.
  """
  host, _, port = address.rpartition(':')
  try:
    async with asyncio.timeout(timeout):
      _, writer = await asyncio.open_connection(host.strip('[]'), int(port))
  except ConnectionRefusedError:
    return Reach.REFUSED
  except (TimeoutError, OSError):
    return Reach.NO_ANSWER
  writer.close()
  return Reach.TAKEN
