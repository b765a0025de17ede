"""TLS for ports that speak HTTP: the gateway's, the status pages', metrics'."""

import logging
import ssl

from saxml_ext.common.security import key_files
from saxml_ext.common.security import tls

_logger = logging.getLogger(__name__)


def is_set() -> bool:
  """Whether HTTP ports of this process speak TLS."""
  return bool(tls.current().cert_file)


def server_context(
  client_certs: ssl.VerifyMode = ssl.CERT_NONE,
) -> ssl.SSLContext | None:
  """What a port needs to speak TLS.

  Args:
    client_certs: whether clients are asked for certificates of --tls_ca_file.
      Most browsers, the openai package and Kubernetes' probes have none.

  Returns:
    A context that takes up replaced files by itself, None without TLS.

  Raises:
    InvalidArgument: a file cannot be used.
  """
  settings = tls.current()
  if not settings.cert_file:
    return None
  files = tls.files(settings)
  used: list[tuple[key_files.Content, ssl.SSLContext]] = []

  def make(content: key_files.Content) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.cert_file, settings.key_file)
    if settings.ca_file and client_certs is not ssl.CERT_NONE:
      context.load_verify_locations(settings.ca_file)
      context.verify_mode = client_certs
    used[:] = [(content, context)]
    return context

  def on_hello(
    connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
  ) -> None:
    """Called at the beginning of each handshake."""
    del name, context
    content = files.newest()
    if content is not used[0][0]:
      try:
        make(content)
      except ssl.SSLError as e:  # They are being replaced right now.
        _logger.error('TLS goes on with the files as they were: %s', e)
    connection.context = used[0][1]

  first = make(files.read())
  first.sni_callback = on_hello
  return first
