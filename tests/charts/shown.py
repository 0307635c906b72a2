"""The tables that the charts of measures are tested against: what each of them shows."""

from __future__ import annotations

from .findings import SUBJECTS, SWIN, VIT

#: Every layer of every chart, as "count mark channel=column[domain] …". Five words stand for more than one mark:
#: `band` and `bars` are the interval of the column on y as an area or as rules, `span` that of the column on x;
#: `curve` is a line with points and its band; `map` is a heat-map, `picture` one that is drawn as a picture.
SHOWN = {
    "attention_distance": """
        2 curve x=rank y=distance color=name
        2 point x=depth[0,1] y=distance
        2 bars x=depth[0,1] y=distance
        """,
    "attention_maps": """
        2 image x=column y=row url=url
        4 point x=depth[0,1] y=value[0,1.1] shape=asking
        2 bars x=depth[0,1] y=value
        """,
    "attention_role": """
        1 point x=replacement y=value xOffset=each_subject color=each_subject
        1 bars x=replacement y=value xOffset=each_subject color=each_subject
        3 line x=depth y=value color=subject
        3 bars x=depth y=value color=subject
        1 line x=depth y=value color=subject strokeDash=varies
        4 point x=depth y=value color=subject
        """,
    "band_noise": """
        1 curve x=frequency[0,1] y=cost color=subject
        1 curve x=strength y=mean_cost color=subject
        """,
    "calibration": """
        1 line x=confidence_in_bin[0,1] y=accuracy_in_bin[0,1] color=subject
        1 bars x=confidence_in_bin y=accuracy_in_bin color=subject
        1 point x=confidence_in_bin y=accuracy_in_bin[0,1] color=subject size=share_in_bin
        1 point x=weights y=error xOffset=subject color=subject
        1 rule x=weights y=low y2=high xOffset=subject color=subject
        1 tick x=weights y=floor xOffset=subject color=subject
        """,
    "cka": """
        3 map color=cka[0,1]
        1 line x=block[1,4] y=cka[0,1] strokeDash=tokens
        1 point x=block[1,4] y=cka[0,1]
        1 rule x=block y=low y2=high
        """,
    "corruption": """
        1 image x=x y=y url=url
        1 text x=x y=y text=text
        1 curve x=level y=by_severity[0,1] color=subject
        1 curve x=level y=nll color=subject
        1 curve x=level y=signed_ece color=subject
        1 point x=by_type[0,1] y=corruption yOffset=subject color=subject
        1 span x=by_type y=corruption yOffset=subject color=subject
        1 rule x=clean color=subject
        1 point x=difference y=corruption yOffset=subject color=subject
        1 span x=difference y=corruption yOffset=subject color=subject
        """,
    "depth_similarity": """
        2 line x=block[1,4] y=cka[0,1] color=pair strokeDash=pair
        2 band x=block y=cka color=pair
        2 point x=block y=cka[0,1] color=pair
        1 map color=cka[0,1]
        """,
    "error_vs_nll": """
        2 point x=nll y=error color=subject shape=what
        2 bars x=nll y=error color=subject
        2 span x=nll y=error color=subject
        """,
    "feature_variance": """
        1 line x=depth[0,1] y=variance color=subject
        1 bars x=depth y=variance color=subject
        1 point x=depth[0,1] y=variance fill=kind shape=kind
        1 line x=depth y=relative color=subject
        1 bars x=depth y=relative color=subject
        1 point x=depth y=relative fill=kind shape=kind
        1 line x=depth y=step color=subject
        1 bars x=depth y=step color=subject
        1 point x=depth y=step fill=kind shape=kind
        1 line x=depth y=relative_step color=subject
        1 bars x=depth y=relative_step color=subject
        1 point x=depth y=relative_step fill=kind shape=kind
        """,
    "few_shot": """
        1 curve x=shot y=linear[0,1] color=subject
        2 curve x=shot y=episodes[0,1] color=ways
        2 rule y=guess color=ways
        """,
    "fourier": """
        2 line x=radians[0,1] y=delta stroke=depth[0,1]
        2 band x=radians y=delta color=depth
        2 point x=radians y=delta color=depth[0,1]
        1 line x=depth[0,1] y=highest color=subject
        1 bars x=depth y=highest color=subject
        1 point x=depth y=highest fill=kind shape=kind
        1 point x=depth y=strided color=subject
        1 line x=depth y=change color=subject
        2 bars x=depth y=change color=subject
        2 point x=depth y=change fill=kind shape=kind
        1 line x=depth y=high_change color=subject
        1 bars x=depth y=high_change color=subject
        1 point x=depth y=high_change fill=kind shape=kind
        1 line x=depth y=change color=subject strokeDash=step
        1 line x=depth y=energy color=subject strokeDash=band
        1 band x=depth y=energy color=subject
        1 point x=depth y=energy color=subject
        """,
    "grouping": """
        2 line x=depth y=value color=subject strokeDash=read
        2 band x=depth y=value color=subject
        2 point x=depth y=value color=subject
        """,
    "head_subsets": "2 curve x=distance y=cka color=name",
    "hessian": """
        4 area x=eigenvalue y=density color=subject
        4 line x=eigenvalue y=density color=subject
        4 tick x=eigenvalue color=subject
        1 span x=nep y=variant yOffset=subject color=subject
        1 point x=nep y=variant yOffset=subject color=subject stroke=subject
        1 span x=ape y=variant yOffset=subject color=subject
        1 point x=ape y=variant yOffset=subject color=subject stroke=subject
        1 span x=smallest y=variant yOffset=subject color=subject
        1 point x=smallest y=variant yOffset=subject color=subject stroke=subject
        1 span x=largest y=variant yOffset=subject color=subject
        1 point x=largest y=variant yOffset=subject color=subject stroke=subject
        """,
    "landscape": """
        8 picture
        2 line x=x y=y
        1 line x=distance y=rise color=subject strokeDash=surface
        1 point x=distance y=rise color=subject
        """,
    "lesion": """
        3 line x=depth[0,1] y=value
        3 bars x=depth y=value
        3 point x=depth[0,1] y=value fill=kind shape=kind
        1 bars x=place y=value xOffset=place_kind
        1 point x=place y=value xOffset=place_kind fill=place_kind shape=place_kind
        """,
    "localisation": """
        5 map color=value
        3 rect x=x x2=x2 y=y y2=y2
        1 line x=depth[0,1] y=hit_rate[0,1] color=line strokeDash=weights
        1 bars x=depth y=hit_rate color=line
        1 point x=depth y=hit_rate[0,1] color=line
        1 tick x=depth y=chance color=line
        1 line x=depth y=peak color=line strokeDash=weights
        1 bars x=depth y=peak color=line
        1 point x=depth y=peak color=line
        """,
    "matching": "4 curve x=depth y=rank color=subject",
    "mc_dropout": """
        1 curve x=size[1,4] y=nll color=subject
        1 curve x=size[1,4] y=accuracy color=subject
        1 curve x=size[1,4] y=ece color=subject
        """,
    "patch_filters": """
        3 image x=column y=row url=url
        2 line x=component[1,8] y=centroid[0,1]
        2 point x=component[1,8] y=centroid[0,1]
        2 area x=component y=low y2=high
        2 rule x=component
        2 line x=component y=held[0,1] strokeDash=kind
        2 point x=component y=held
        """,
    "position_embeddings": """
        3 picture
        1 line x=distance y=cosine color=pairs
        1 area x=distance y=low y2=high color=pairs
        1 point x=distance y=cosine color=pairs
        1 point x=block y=steps_nearness[-1,1]
        """,
    "probes": """
        1 curve x=depth[0,1] y=accuracy[0,1] color=subject
        1 line x=depth y=accuracy color=subject strokeDash=readout
        1 bars x=depth y=accuracy color=subject
        1 point x=depth y=accuracy[0,1] color=subject
        8 map color=token_accuracy
        """,
    "receptive_field": """
        4 picture color=value[0,1]
        8 rect x=x x2=x2 y=y y2=y2
        4 text x=x text=text
        2 line x=depth[0,1] y=value color=subject strokeDash=read
        2 band x=depth y=value color=subject
        2 point x=depth y=value color=subject
        1 tick x=depth y=bare color=subject
        """,
    "recognition": """
        1 point x=accuracy y=subject color=subject
        1 rule x=low x2=high y=subject color=subject
        """,
    "robustness": """
        3 curve x=at y=accuracy[0,1] color=subject
        3 curve x=at y=relative[0,1] color=subject
        """,
    "shape_texture": """
        1 line x=cutoff y=accuracy[0,1] color=subject strokeDash=kept
        1 bars x=cutoff y=accuracy color=subject
        1 point x=cutoff y=accuracy[0,1] color=subject
        1 curve x=tiles y=accuracy[0,1] color=subject
        1 bars x=subject y=accuracy color=subject
        1 point x=subject y=accuracy[0,1] color=subject
        """,
    "shift": """
        2 line x=depth[0,1] y=value color=subject strokeDash=read
        2 band x=depth y=value color=subject
        4 point x=depth y=value color=subject
        2 line x=at y=value color=subject
        2 bars x=at y=value color=subject
        4 point x=at y=value color=subject
        """,
    "skip_ratio": """
        1 line x=depth[0,1] y=ratio color=subject strokeDash=token
        1 bars x=depth y=ratio color=subject
        1 point x=depth y=ratio fill=kind shape=kind
        2 map color=log_ratio
        """,
    "skip_removal": """
        1 line x=depth y=lost color=subject strokeDash=mode
        1 bars x=depth y=lost color=subject
        1 point x=depth y=lost color=subject
        1 line x=depth y=across[0,1.2] color=subject strokeDash=mode
        1 bars x=depth y=across color=subject
        1 point x=depth y=across[0,1.2] color=subject
        2 map color=cka[0,1]
        4 text text=text
        """,
    "token_place": """
        1 point x=control y=hit_rate[0,1] xOffset=subject color=subject
        1 bars x=control y=hit_rate xOffset=subject color=subject
        1 curve x=depth[0,1] y=place[0,1] color=subject
        1 line x=depth y=pixels[0,1] color=subject strokeDash=relation
        1 bars x=depth y=pixels color=subject
        1 point x=depth y=pixels[0,1] color=subject
        """,
    "trajectory": """
        1 line x=x y=y
        1 line x=x y=y color=training
        1 point x=x y=y color=training
        1 text x=x y=y color=training text=moment
        """,
}

#: The names on dashed lines: what chance, a uniform or an idle model would score.
REFERENCES = {
    "attention_distance": {"uniform", "itself"},
    "attention_maps": {"uniform attention", "a single key"},
    "attention_role": {"as intact"},
    "band_noise": {"low", "high", "10 points", "first panel"},
    "feature_variance": {"ViT: first half"},
    "few_shot": {"guessing"},
    "grouping": {"by place alone"},
    "head_subsets": {"uniform attention"},
    "matching": {"by chance"},
    "position_embeddings": {"no relation"},
    "probes": {"commonest class"},
    "robustness": {"guessing, 1 of 10 classes"},
    "shape_texture": {"guessing", "both alike"},
    "skip_ratio": {"equal lengths"},
    "skip_removal": {"nothing lost", "as alike as intact"},
}

#: The column on a channel that has the same domain in so many panels, so that these can be compared.
SAME_DOMAIN = [
    ("attention_role", "y", "value", 3),
    ("cka", "color", "cka", 3),
    ("fourier", "y", "delta", 2),
    ("grouping", "y", "value", 2),
    ("hessian", "y", "density", 4),
    ("landscape", "color", "value", 8),
    ("probes", "color", "token_accuracy", 8),
    ("receptive_field", "color", "value", 4),
    ("robustness", "y", "accuracy", 3),
    ("skip_ratio", "color", "log ratio", 2),
    ("skip_removal", "color", "cka", 2),
]

#: Whose colours a chart has, where these are not all subjects of its finding.
COLOURED = {
    "attention_role": {VIT, SWIN},
    "cka": {VIT},  # the rest are maps
    "depth_similarity": {VIT},  # the first of each pair
    "head_subsets": set(),  # curves of layers
    "localisation": set(SUBJECTS),  # an untrained twin has the colour of its subject
    "position_embeddings": {VIT, SWIN},
    "trajectory": set(SUBJECTS),
}

#: Findings whose numbers have no interval: a surface and the weights themselves.
WITHOUT_INTERVALS = {"landscape", "trajectory"}

#: Measures whose losses are drawn below zero.
DOWNWARDS = ("attention_role", "band_noise", "lesion")

#: Measures that draw shares as points or per cent.
IN_POINTS = (*DOWNWARDS, "corruption", "skip_removal")
