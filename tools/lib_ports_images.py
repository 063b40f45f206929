"""Real ports of vision models: see ``lib_ports.py``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from lib_ports import SMALL, Port, carried, carried_in_order, fused, port, randomized, renamed

QKV = ("q_proj.", "k_proj.", "v_proj.")
IN_PROJ = (("q_proj.weight", "k_proj.weight", "v_proj.weight"), ("q_proj.bias", "k_proj.bias", "v_proj.bias"))


def _images(size: int) -> Tensor:
    return torch.randn(2, 3, size, size)


def _logits(out: Any) -> Tensor:
    return out.logits  # type: ignore[no-any-return]


# Transformers of patches ---------------------------------------------------------------------------

_VIT = {**SMALL, "image_size": 16, "patch_size": 8, "num_labels": 5, "layer_norm_eps": 1e-6}
_TIMM_VIT = {
    "img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_ratio": 2.0, "num_classes": 5,
}  # fmt: skip
_TO_TIMM = (
    (r"^(vit|deit)\.", ""),
    (r"^embeddings\.(cls_token)", r"\1"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.distillation_token", "dist_token"),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^layers", "blocks"),
    (r"attention\.o_proj", "attn.proj"),
    (r"attention\.", "attn."),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"^layernorm", "norm"),
    (r"^(cls_)?classifier", "head"),
    (r"^distillation_classifier", "head_dist"),
)


@port("vit/timm")
def _() -> Port:
    from timm.models.vision_transformer import VisionTransformer

    reference = randomized(transformers.ViTForImageClassification(transformers.ViTConfig(**_VIT)))
    state = fused(renamed(reference.state_dict(), *_TO_TIMM), QKV, "qkv.")
    images = _images(16)
    return Port(reference, carried(VisionTransformer(**_TIMM_VIT), state), {"pixel_values": images}, images, _logits)


@port("deit/timm")
def _() -> Port:
    from timm.models.deit import VisionTransformerDistilled

    reference = randomized(transformers.DeiTForImageClassificationWithTeacher(transformers.DeiTConfig(**_VIT)))
    state = fused(renamed(reference.state_dict(), *_TO_TIMM), QKV, "qkv.")
    images = _images(16)
    suspect = carried(VisionTransformerDistilled(**_TIMM_VIT), state)
    return Port(reference, suspect, {"pixel_values": images}, images, _logits)


@port("vit/torchvision")
def _() -> Port:
    from torchvision.models import VisionTransformer

    reference = randomized(transformers.ViTForImageClassification(transformers.ViTConfig(**_VIT)))
    state = renamed(
        reference.state_dict(),
        (r"^vit\.embeddings\.cls_token", "class_token"),
        (r"^vit\.embeddings\.position_embeddings", "encoder.pos_embedding"),
        (r"^vit\.embeddings\.patch_embeddings\.projection", "conv_proj"),
        (r"^vit\.layers\.", "encoder.layers.encoder_layer_"),
        (r"attention\.o_proj", "self_attention.out_proj"),
        (r"\.attention\.", ".self_attention."),
        (r"layernorm_before", "ln_1"),
        (r"layernorm_after", "ln_2"),
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.3"),
        (r"^vit\.layernorm", "encoder.ln"),
        (r"^classifier", "heads.head"),
    )
    for parts, into in zip(IN_PROJ, ("in_proj_weight", "in_proj_bias")):
        state = fused(state, parts, into)
    images = _images(16)
    suspect = carried(VisionTransformer(16, 8, 2, 4, 32, 64, num_classes=5), state)
    return Port(reference, suspect, {"pixel_values": images}, images, _logits)


@port("clip/open_clip")
def _() -> Port:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    text = {"vocab_size": 50, "max_position_embeddings": 10, "bos_token_id": 0, "eos_token_id": 49, "pad_token_id": 1}
    vision = {"image_size": 16, "patch_size": 8}
    config = transformers.CLIPConfig(
        text_config={**SMALL, **text}, vision_config={**SMALL, **vision}, projection_dim=16
    )
    reference = randomized(transformers.CLIPModel(config))
    state = renamed(
        reference.state_dict(),
        (r"^vision_model\.embeddings\.class_embedding", "visual.class_embedding"),
        (r"^vision_model\.embeddings\.patch_embedding", "visual.conv1"),
        (r"^vision_model\.embeddings\.position_embedding\.weight", "visual.positional_embedding"),
        (r"^vision_model\.pre_layrnorm", "visual.ln_pre"),
        (r"^vision_model\.post_layernorm", "visual.ln_post"),
        (r"^vision_model\.encoder\.layers", "visual.transformer.resblocks"),
        (r"^text_model\.embeddings\.token_embedding", "token_embedding"),
        (r"^text_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"^text_model\.final_layer_norm", "ln_final"),
        (r"^text_model\.encoder\.layers", "transformer.resblocks"),
        (r"^visual_projection\.weight", "visual.proj"),
        (r"^text_projection\.weight", "text_projection"),
        (r"self_attn", "attn"),
        (r"layer_norm([12])", r"ln_\1"),
        (r"mlp\.fc1", "mlp.c_fc"),
        (r"mlp\.fc2", "mlp.c_proj"),
    )
    for parts, into in zip(IN_PROJ, ("in_proj_weight", "in_proj_bias")):
        state = fused(state, parts, into)
    for name in ("visual.proj", "text_projection"):
        state[name] = state[name].T
    suspect = CLIP(
        16,
        CLIPVisionCfg(layers=2, width=32, head_width=8, mlp_ratio=2.0, patch_size=8, image_size=16),
        CLIPTextCfg(context_length=10, vocab_size=50, width=32, heads=4, layers=2, mlp_ratio=2.0),
        quick_gelu=True,
    )
    tokens = torch.tensor([[0, 5, 7, 9, 11, 2, 8, 3, 4, 49], [0, 9, 4, 49, 1, 1, 1, 1, 1, 1]])
    images = _images(16)
    inputs = {"input_ids": tokens, "pixel_values": images}
    both: Any = lambda out: torch.cat([out.image_embeds, out.text_embeds])  # noqa: E731
    return Port(reference, carried(suspect, state), inputs, (images, tokens), both, lambda out: torch.cat(out[:2]))


_SWIN = {
    "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
    "num_labels": 5,
}  # fmt: skip
_SWIN_BLOCKS = (
    (r"relative_position_bias\.relative_position_bias_table", "relative_position_bias_table"),
    (r"attention\.o_proj", "attn.proj"),
    (r"attention\.", "attn."),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
)


@port("swin/timm")
def _() -> Port:
    from timm.models.swin_transformer import SwinTransformer

    reference = randomized(transformers.SwinForImageClassification(transformers.SwinConfig(**_SWIN)))
    state = renamed(
        reference.state_dict(),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^swin\.embeddings\.norm", "patch_embed.norm"),
        (r"^swin\.encoder\.", ""),
        (r"^layers\.0\.downsample", "layers.1.downsample"),
        *_SWIN_BLOCKS,
        (r"^swin\.layernorm", "norm"),
        (r"^classifier", "head.fc"),
    )
    suspect = SwinTransformer(
        img_size=32, patch_size=2, embed_dim=8, depths=(2, 2), num_heads=(2, 4), window_size=4, num_classes=5
    )
    images = _images(32)
    return Port(reference, carried(suspect, fused(state, QKV, "qkv.")), {"pixel_values": images}, images, _logits)


@port("swin/torchvision")
def _() -> Port:
    from torchvision.models.swin_transformer import SwinTransformer

    reference = randomized(transformers.SwinForImageClassification(transformers.SwinConfig(**_SWIN)))
    state = renamed(
        reference.state_dict(),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "features.0.0"),
        (r"^swin\.embeddings\.norm", "features.0.2"),
        (r"^swin\.encoder\.layers\.0\.downsample", "features.2"),
        (r"^swin\.encoder\.layers\.0\.blocks", "features.1"),
        (r"^swin\.encoder\.layers\.1\.blocks", "features.3"),
        *_SWIN_BLOCKS,
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.3"),
        (r"^swin\.layernorm", "norm"),
        (r"^classifier", "head"),
    )
    suspect = SwinTransformer([2, 2], 8, [2, 2], [2, 4], [4, 4], num_classes=5)
    images = _images(32)
    return Port(reference, carried(suspect, fused(state, QKV, "qkv.")), {"pixel_values": images}, images, _logits)


@port("sam/segment_anything")
def _() -> Port:
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    vision = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 64, "image_size": 64,
        "patch_size": 16, "global_attn_indexes": [1], "window_size": 3, "output_channels": 16, "num_pos_feats": 8,
    }  # fmt: skip
    config = transformers.SamConfig(
        vision_config=vision,
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 16},
        mask_decoder_config={
            "hidden_size": 16, "num_attention_heads": 4, "mlp_dim": 64, "iou_head_hidden_dim": 16,
            "layer_norm_eps": 1e-5,  # nn.LayerNorm's own, which the port has; checkpoints for transformers say 1e-6
        },
    )  # fmt: skip
    reference = randomized(transformers.SamModel(config))
    state = renamed(
        reference.state_dict(),
        (r"^vision_encoder\.patch_embed\.projection", "image_encoder.patch_embed.proj"),
        (r"^vision_encoder\.layers", "image_encoder.blocks"),
        (r"^vision_encoder\.neck\.conv1", "image_encoder.neck.0"),
        (r"^vision_encoder\.neck\.layer_norm1", "image_encoder.neck.1"),
        (r"^vision_encoder\.neck\.conv2", "image_encoder.neck.2"),
        (r"^vision_encoder\.neck\.layer_norm2", "image_encoder.neck.3"),
        (r"^vision_encoder", "image_encoder"),
        (
            r"^shared_image_embedding\.positional_embedding",
            "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix",
        ),
        (r"^prompt_encoder\.shared_embedding.*", ""),
        (r"^prompt_encoder\.mask_embed\.conv1", "prompt_encoder.mask_downscaling.0"),
        (r"^prompt_encoder\.mask_embed\.layer_norm1", "prompt_encoder.mask_downscaling.1"),
        (r"^prompt_encoder\.mask_embed\.conv2", "prompt_encoder.mask_downscaling.3"),
        (r"^prompt_encoder\.mask_embed\.layer_norm2", "prompt_encoder.mask_downscaling.4"),
        (r"^prompt_encoder\.mask_embed\.conv3", "prompt_encoder.mask_downscaling.6"),
        (r"^prompt_encoder\.point_embed", "prompt_encoder.point_embeddings"),
        (r"upscale_conv1", "output_upscaling.0"),
        (r"upscale_layer_norm", "output_upscaling.1"),
        (r"upscale_conv2", "output_upscaling.3"),
        (r"layer_norm_final_attn", "norm_final_attn"),
        (r"layer_norm(\d)", r"norm\1"),
        (r"(hypernetworks_mlps\.\d|iou_prediction_head)\.proj_out", r"\1.layers.2"),
        (r"(hypernetworks_mlps\.\d|iou_prediction_head)\.layers\.0", r"\1.layers.1"),
        (r"(hypernetworks_mlps\.\d|iou_prediction_head)\.proj_in", r"\1.layers.0"),
    )
    state.pop("", None)  # the second name of the shared embedding
    norm = partial(nn.LayerNorm, eps=1e-6)
    suspect = Sam(
        ImageEncoderViT(
            depth=2, embed_dim=32, img_size=64, mlp_ratio=2, norm_layer=norm, num_heads=4, patch_size=16,
            qkv_bias=True, use_rel_pos=True, global_attn_indexes=(1,), window_size=3, out_chans=16,
        ),
        PromptEncoder(16, (4, 4), (64, 64), 16),
        MaskDecoder(
            num_multimask_outputs=3, transformer=TwoWayTransformer(depth=2, embedding_dim=16, mlp_dim=64, num_heads=4),
            transformer_dim=16, iou_head_depth=3, iou_head_hidden_dim=16,
        ),
        [0.0, 0.0, 0.0],
        [1.0, 1.0, 1.0],
    )  # fmt: skip
    image, points, labels = torch.randn(3, 64, 64), torch.tensor([[10.0, 20.0], [40.0, 30.0]]), torch.tensor([1, 0])
    prompt = {
        "image": image, "original_size": (64, 64), "point_coords": points[None], "point_labels": labels[None],
    }  # fmt: skip
    inputs = {"pixel_values": image[None], "input_points": points[None, None], "input_labels": labels[None, None]}
    return Port(
        reference,
        carried(suspect, state),
        inputs,
        ([prompt], True),
        lambda out: out.pred_masks[0],
        lambda out: out[0]["low_res_logits"],
    )


# Convolutional networks ----------------------------------------------------------------------------

_RESNET_NAMES = (
    (r"^resnet\.embedder\.embedder\.convolution", "conv1"),
    (r"^resnet\.embedder\.embedder\.normalization", "bn1"),
    (r"^resnet\.encoder\.stages\.(\d)\.layers\.(\d)", lambda found: f"layer{int(found[1]) + 1}.{found[2]}"),
    (r"shortcut\.convolution", "downsample.0"),
    (r"shortcut\.normalization", "downsample.1"),
    (r"layer\.(\d)\.convolution", lambda found: f"conv{int(found[1]) + 1}"),
    (r"layer\.(\d)\.normalization", lambda found: f"bn{int(found[1]) + 1}"),
    (r"^classifier\.1", "fc"),
)


@port("resnet/timm")
def _() -> Port:
    from timm.models.resnet import Bottleneck, ResNet

    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[16, 32, 64, 128], depths=[1, 2, 1, 1], layer_type="bottleneck", num_labels=5
    )
    reference = randomized(transformers.ResNetForImageClassification(config))
    suspect = carried(
        ResNet(Bottleneck, (1, 2, 1, 1), num_classes=5, channels=(4, 8, 16, 32)),
        renamed(reference.state_dict(), *_RESNET_NAMES),
    )
    images = _images(64)
    return Port(reference, suspect, {"pixel_values": images}, images, _logits)


@port("resnet/torchvision")
def _() -> Port:
    from torchvision.models.resnet import BasicBlock, ResNet

    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[1, 1, 1, 1], layer_type="basic", num_labels=5
    )
    reference = randomized(transformers.ResNetForImageClassification(config))
    suspect = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)
    carried(suspect, renamed(reference.state_dict(), *_RESNET_NAMES))
    images = _images(64)
    return Port(reference, suspect, {"pixel_values": images}, images, _logits)


_CONVNEXT = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 2, 1, 1], "num_labels": 5, "layer_norm_eps": 1e-6}


@port("convnext/timm")
def _() -> Port:
    from timm.models.convnext import ConvNeXt

    reference = randomized(transformers.ConvNextForImageClassification(transformers.ConvNextConfig(**_CONVNEXT)))
    state = renamed(
        reference.state_dict(),
        (r"^convnext\.embeddings\.patch_embeddings", "stem.0"),
        (r"^convnext\.embeddings\.layernorm", "stem.1"),
        (r"^convnext\.layernorm", "head.norm"),
        (r"^convnext\.encoder\.", ""),
        (r"\.layers\.", ".blocks."),
        (r"layer_scale_parameter", "gamma"),
        (r"dwconv", "conv_dw"),
        (r"layernorm", "norm"),
        (r"pwconv", "mlp.fc"),
        (r"downsampling_layer", "downsample"),
        (r"^classifier", "head.fc"),
    )
    suspect = carried(ConvNeXt(depths=(1, 2, 1, 1), dims=(8, 12, 16, 20), num_classes=5), state)
    images = _images(64)
    return Port(reference, suspect, {"pixel_values": images}, images, _logits)


@port("convnext/torchvision")
def _() -> Port:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    reference = randomized(transformers.ConvNextForImageClassification(transformers.ConvNextConfig(**_CONVNEXT)))
    state = renamed(
        reference.state_dict(),
        (r"^convnext\.embeddings\.patch_embeddings", "features.0.0"),
        (r"^convnext\.embeddings\.layernorm", "features.0.1"),
        (r"^convnext\.layernorm", "classifier.0"),
        (r"^classifier\.(weight|bias)", r"classifier.2.\1"),
        (r"^convnext\.encoder\.stages\.(\d)\.layers", lambda found: f"features.{2 * int(found[1]) + 1}"),
        (r"^convnext\.encoder\.stages\.(\d)\.downsampling_layer", lambda found: f"features.{2 * int(found[1])}"),
        (r"layer_scale_parameter", "layer_scale"),
        (r"dwconv", "block.0"),
        (r"layernorm", "block.2"),
        (r"pwconv1", "block.3"),
        (r"pwconv2", "block.5"),
    )
    blocks = [CNBlockConfig(8, 12, 1), CNBlockConfig(12, 16, 2), CNBlockConfig(16, 20, 1), CNBlockConfig(20, None, 1)]
    suspect = carried(ConvNeXt(blocks, num_classes=5), state)
    images = _images(64)
    return Port(reference, suspect, {"pixel_values": images}, images, _logits)


# Between torchvision and timm -----------------------------------------------------------------------


def _of_torchvision(reference: nn.Module, suspect: nn.Module, size: int = 64) -> Port:
    carried_in_order(suspect, randomized(reference).state_dict())
    images = _images(size)
    return Port(reference, suspect, images, images)


@port("resnet-torchvision/timm")
def _() -> Port:
    from timm.models.resnet import Bottleneck, ResNet
    from torchvision.models import resnet

    reference = resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], num_classes=5, groups=2, width_per_group=32)
    suspect = ResNet(Bottleneck, (1, 1, 1, 1), num_classes=5, cardinality=2, base_width=32)
    return _of_torchvision(reference, suspect)


@port("densenet-torchvision/timm")
def _() -> Port:
    from timm.models.densenet import DenseNet
    from torchvision.models import densenet

    reference = densenet.DenseNet(4, (2, 2), num_init_features=8, bn_size=2, num_classes=5)
    suspect = DenseNet(growth_rate=4, block_config=(2, 2), bn_size=2, num_classes=5)
    return _of_torchvision(reference, suspect)


@port("mobilenetv3-torchvision/timm")
def _() -> Port:
    import timm
    from torchvision.models import mobilenet_v3_small

    suspect = timm.create_model("mobilenetv3_small_100", num_classes=5)
    for module in suspect.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3  # that of torchvision
    return _of_torchvision(mobilenet_v3_small(num_classes=5), suspect)


@port("vit-torchvision/timm")
def _() -> Port:
    from timm.models.vision_transformer import VisionTransformer
    from torchvision.models import vision_transformer

    reference = randomized(vision_transformer.VisionTransformer(16, 8, 2, 4, 32, 64, num_classes=5))
    state = renamed(
        reference.state_dict(),
        (r"^class_token", "cls_token"),
        (r"^conv_proj", "patch_embed.proj"),
        (r"^encoder\.pos_embedding", "pos_embed"),
        (r"^encoder\.layers\.encoder_layer_", "blocks."),
        (r"ln_(\d)", r"norm\1"),
        (r"self_attention\.in_proj_", "attn.qkv."),
        (r"self_attention\.out_proj", "attn.proj"),
        (r"mlp\.linear_1|mlp\.0", "mlp.fc1"),
        (r"mlp\.linear_2|mlp\.3", "mlp.fc2"),
        (r"^encoder\.ln", "norm"),
        (r"^heads\.head", "head"),
    )
    images = _images(16)
    return Port(reference, carried(VisionTransformer(**_TIMM_VIT), state), images, images)


@port("dinov2/timm")
def _() -> Port:
    from timm.models.vision_transformer import VisionTransformer

    own = {**SMALL, "image_size": 16, "patch_size": 8, "layer_norm_eps": 1e-6, "mlp_ratio": 2, "num_labels": 5}
    own.pop("intermediate_size")
    reference = randomized(transformers.Dinov2Model(transformers.Dinov2Config(**own)))
    state = renamed(
        {name: value for name, value in reference.state_dict().items() if "mask_token" not in name},
        *_TO_TIMM,
        (r"^encoder\.layer\.", "blocks."),
        (r"attn\.attn\.(query|key|value)", lambda found: f"attn.{found[1][0]}_proj"),
        (r"attn\.output\.dense", "attn.proj"),
        (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    )
    suspect = VisionTransformer(**{**_TIMM_VIT, "num_classes": 0}, init_values=1.0, global_pool="")
    carried(suspect, fused(state, QKV, "qkv."))
    images = _images(16)
    return Port(reference, suspect, {"pixel_values": images}, images, lambda out: out.last_hidden_state)
