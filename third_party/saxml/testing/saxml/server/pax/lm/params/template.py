"""A stand-in for upstream's serving template.

It has every attribute of the template of the release, with its default.
"""

import abc
import dataclasses
import functools

from saxml.server import servable_model_registry
import saxml_release

from saxml_ext.params.testing import upstream_facts

CommonServingTemplate = type(
  'CommonServingTemplate',
  (),
  dict(upstream_facts.load(saxml_release.NAME).template),
)


class ServingTemplate(CommonServingTemplate, metaclass=abc.ABCMeta):
  """The interface between the server and a servable class."""

  @abc.abstractmethod
  def task(self):
    """Returns the Pax task."""

  @classmethod
  def sax_registration_name(cls):
    return None

  @classmethod
  def serving_mesh_shape(cls):
    return cls.ICI_MESH_SHAPE

  def compiler_options(self):
    return {}


def make_servable(servable_class=ServingTemplate):
  """Returns a decorator that gives an experiment a template's attributes."""

  def decorate(experiment):
    @functools.wraps(experiment, updated=())
    class Servable(experiment, servable_class):
      @classmethod
      def sax_registration_name(cls):
        # As in upstream, the name is the experiment's, and subclasses do not
        # inherit it.
        if cls is Servable:
          return servable_model_registry.full_registration_name(experiment)
        return None

    return Servable

  return decorate


def set_decoding_sharding_hparams(
  task_p, mesh_shape, decode_mesh_transpose=None, use_batch_sharding=False
):
  """Records the arguments in the stand-in's task."""
  return dataclasses.replace(
    task_p,
    mesh_shape=tuple(mesh_shape),
    transposed=bool(decode_mesh_transpose),
    batch_sharding=use_batch_sharding,
  )
