"""All types of events by name."""

from collections.abc import Mapping

from bundled.gptj import economy
from bundled.gptj import event
from bundled.gptj import incidents
from bundled.gptj import public_life

EVENTS: Mapping[str, event.Event] = {
  **incidents.EVENTS,
  **public_life.EVENTS,
  **economy.EVENTS,
}
