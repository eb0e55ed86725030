"""The vision transformer of `transformers`. Either all of it is trained, or only LoRA adapters and the classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Doc

from ..settings.errors import SettingError, check, library, one_line
from .parts import image, network


def vit(
    shape: Sequence[int],
    classes: int,
    pretrained: Annotated[
        str,
        Doc(
            'a folder or a name on the Hugging Face hub, such as `"google/vit-base-patch16-224-in21k"`, of a model '
            "with the channels and sizes given here; empty: the encoder starts from truncated normal values of "
            "standard deviation 0.02"
        ),
    ] = "",
    image_size: Annotated[int, Doc("the side of an image in pixels, to which other images are resized")] = 224,
    layers: Annotated[int, Doc("how many layers the encoder has")] = 12,
    width: Annotated[int, Doc("the length of a token's vector")] = 768,
    heads: Annotated[int, Doc("how many heads an attention has")] = 12,
    mlp: Annotated[int, Doc("the width of a layer's MLP")] = 3072,
    patch: Annotated[int, Doc("the side of a patch, in pixels")] = 16,
    lora_rank: Annotated[int, Doc("the rank r of LoRA's adapters; 0: no adapters, all of the model is trained")] = 0,
) -> nn.Module:
    """Vision transformer, by default ViT-B/16 (FedSWA): 85,952,456 parameters for 200 classes.

    Dosovitskiy et al. 2021, as in `transformers`. Images are resized by bilinear interpolation. The feature is the
    normalised last state of the class token, `[width]`.

    With `lora_rank` r > 0 each projection W of the attention (query, key, value, output) becomes W + 2 B A, with A
    `[r, width]`, B `[width, r]`, B = 0 at first (Hu et al. 2022; alpha = 2 r, dropout 0.05 before A, as in FedSWA's
    code, whose first three projections share one A). Only A, B and the classifier are trained, sent and averaged. So
    the model's vector has 8 r `width` entries for each layer, and those of the classifier.

    Raises `LibraryError` without transformers or peft (`pip install "fedsash[vit]"`), and `SettingError` for sizes that
    do not fit each other or the pretrained model.
    """
    channels, _, _ = image("vit", shape, smallest=1)
    sizes = {"image_size": image_size, "layers": layers, "width": width, "heads": heads, "mlp": mlp, "patch": patch}
    for name, size in sizes.items():
        check(size >= 1, f"vit.{name}", size, "must be at least 1")
    check(image_size % patch == 0, "vit.patch", patch, f"must divide image_size = {image_size}")
    check(width % heads == 0, "vit.heads", heads, f"must divide width = {width}")
    check(lora_rank >= 0, "vit.lora_rank", lora_rank, "must not be negative")
    encoder = _encoder(pretrained, sizes | {"channels": channels})
    if lora_rank:
        _adapt(encoder, lora_rank)
    return network(ClassToken(encoder, image_size), nn.Linear(width, classes))


class ClassToken(nn.Module):
    """An encoder's last state at the class token, `[B, width]` for images `[B, channels, H, W]`."""

    def __init__(self, encoder: nn.Module, side: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        size = (self.side, self.side)
        if x.shape[-2:] != size:
            x = F.interpolate(x, size, mode="bilinear", align_corners=False)
        state: Tensor = self.encoder(pixel_values=x).last_hidden_state
        return state[:, 0]


KEYS = {
    "channels": "num_channels",
    "image_size": "image_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "mlp": "intermediate_size",
    "patch": "patch_size",
}
"""The names of the sizes in transformers."""


def _encoder(pretrained: str, sizes: Mapping[str, int]) -> nn.Module:
    """The encoder, with the weights of a pretrained model or with initial ones."""
    with library("transformers", "the model vit", "fedsash[vit]"):
        import transformers
    config = {KEYS[name]: size for name, size in sizes.items()}
    if not pretrained:
        encoder: nn.Module = transformers.ViTModel(transformers.ViTConfig(**config), add_pooling_layer=False)
        return encoder
    try:
        stored = transformers.ViTConfig.from_pretrained(pretrained)
        for name, size in sizes.items():
            stored_size = getattr(stored, KEYS[name])
            check(size == stored_size, f"vit.{name}", size, f"must be {stored_size}, which {pretrained} has")
        encoder = transformers.ViTModel.from_pretrained(pretrained, config=stored, add_pooling_layer=False)
    except OSError as error:
        raise SettingError("vit", "pretrained", pretrained, f"can't be loaded: {one_line(error)}") from error
    return encoder.float()


def _adapt(encoder: nn.Module, rank: int) -> None:
    """Freeze the encoder and add an adapter to every linear layer of its attention, in place."""
    with library("peft", "the model vit with lora_rank > 0", "fedsash[vit]"):
        import peft
    encoder.requires_grad_(False)
    projections = []
    for name, layer in encoder.named_modules():
        if isinstance(layer, nn.Linear) and "attention" in name:
            projections.append(name)
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, bias="none", target_modules=projections)
    peft.inject_adapter_in_model(config, encoder)
