"""What a row would teach the model, as one unit vector.

An extractor is a frozen dataclass: its fields are its hyper-parameters, its call is the method.
"""

from collections.abc import Mapping

from cluster_bench.features.none import NoFeature
from cluster_bench.features.response_gradient import ResponseGradient

EXTRACTORS: Mapping[str, type] = {"none": NoFeature, "response_gradient": ResponseGradient}
