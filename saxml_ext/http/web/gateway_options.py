"""How the gateway takes requests."""

from collections.abc import Callable, Collection, Mapping, Sequence
import dataclasses

from saxml_ext.http.protocol import model_profiles as profiles_lib

# An API key -> the name of its owner; None if it is nobody's.
NameOf = Callable[[str], str | None]


@dataclasses.dataclass(frozen=True)
class Options:
  """How the gateway takes requests.

  Attributes:
    name_of: checks API keys; None lets everybody in.
    max_in_flight: requests at a time; further ones are refused.
    max_body_bytes: of a request.
    request_timeout: seconds that a request may take.
    queue_secs: seconds of those that it may wait for room in a full queue.
    profile: How requests to models are read that `profiles` lacks.
    profiles: The id of a model -> how its requests are read.
    allowed_origins: whose pages may ask; "*" for all.
    local: True if this machine alone reaches the gateway. Only requests for
      loopback's names and for `allowed_hosts` are answered then.
    allowed_hosts: Names that requests may be for, in lower case. If there are
      any, others are refused.
    most_bodies: The request bodies that are received at a time from one client.
    health_routes, predict_routes: paths of these two; Vertex AI has its own.
  """

  name_of: NameOf | None = None
  max_in_flight: int = 1024
  max_body_bytes: int = 4 * 2**20
  request_timeout: float = 600.0
  queue_secs: float = 0.0
  profile: profiles_lib.Profile = profiles_lib.Profile()
  profiles: Mapping[str, profiles_lib.Profile] = dataclasses.field(
    default_factory=dict
  )
  allowed_origins: Sequence[str] = ()
  local: bool = False
  allowed_hosts: Collection[str] = ()
  most_bodies: int = 64
  health_routes: Sequence[str] = ('/health',)
  predict_routes: Sequence[str] = ('/predict',)
