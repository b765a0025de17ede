"""All types of events by name."""

from collections.abc import Mapping

from harness.bundled import economy
from harness.bundled import event
from harness.bundled import incidents
from harness.bundled import public_life

EVENTS: Mapping[str, event.Event] = {
  **incidents.EVENTS,
  **public_life.EVENTS,
  **economy.EVENTS,
}
