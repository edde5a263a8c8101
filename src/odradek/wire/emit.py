"""Python source of the codecs of one schema file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from odradek.wire.definitions import Field, Message, Struct, Versions

WIDTH = 120
# type -> (struct code, size in bytes, letter in the names of precompiled formats, Python type, default)
FIXED: dict[str, tuple[str, int, str, str, str]] = {
    "bool": ("?", 1, "Z", "bool", "False"),
    "int8": ("b", 1, "B", "int", "0"),
    "int16": ("h", 2, "H", "int", "0"),
    "uint16": ("H", 2, "W", "int", "0"),
    "int32": ("i", 4, "I", "int", "0"),
    "uint32": ("I", 4, "V", "int", "0"),
    "int64": ("q", 8, "Q", "int", "0"),
    "float64": ("d", 8, "D", "float", "0.0"),
    "uuid": ("16s", 16, "U", "bytes", "ZERO_UUID"),
}
VARIABLE: dict[str, tuple[str, str]] = {
    "string": ("str", '""'),
    "bytes": ("bytes", 'b""'),
    "records": ("Buffer", 'b""'),
}


class Source:
    """Lines with indentation, in the formatter's style, and the names they use."""

    __slots__ = ("depth", "formats", "lines", "names")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.names: set[str] = set()
        self.formats: dict[str, str] = {}

    def add(self, text: str = "") -> None:
        """Append a line at the current indentation."""
        line = "    " * self.depth + text if text else ""
        head = line[: line.rfind("(") + 1] if line.endswith(")") else line
        indent = line[: len(line) - len(line.lstrip())]
        if len(line) > WIDTH and (len(head) > WIDTH or " else " in text) and " = " in text:
            name, value = line.split(" = ", 1)
            self.lines += [f"{name} = (", f"{indent}    {value}", f"{indent})"]
        elif len(line) > WIDTH and text.endswith(")"):
            self.lines += [head, f"{indent}    {line[len(head) : -1]}", f"{indent})"]
        else:
            self.lines.append(line)

    def use(self, name: str) -> str:
        """A name of `primitives`."""
        self.names.add(name)
        return name

    def packed(self, kind: str, fields: list[Field]) -> str:
        """Name of the precompiled `pack` or `unpack` for adjacent fields of fixed size."""
        name = f"_{kind}_" + "".join(FIXED[each.element][2] for each in fields)
        self.formats[name] = ">" + "".join(FIXED[each.element][0] for each in fields)
        return name

    def listed(self, before: str, items: list[str], after: str) -> None:
        """`before item, item after` on one line if it fits, else one item a line."""
        line = before + ", ".join(items) + after
        if 4 * self.depth + len(line) <= WIDTH:
            self.add(line)
            return
        self.add(before)
        for item in items:
            self.add(f"    {item},")
        self.add(after)

    def indented(self, head: str, body: Callable[[], None]) -> None:
        """Append a head line and the lines that `body` adds, indented."""
        self.add(head)
        self.depth += 1
        body()
        self.depth -= 1


def condition(wanted: Versions, known: Versions) -> str | None:
    """The test that selects `wanted` within `known`, None if always true."""
    if wanted.covers(known):
        return None
    if wanted.high >= known.high:
        return f"version >= {wanted.low}"
    if wanted.low <= known.low:
        return f"version <= {wanted.high}"
    if wanted.low == wanted.high:
        return f"version == {wanted.low}"
    return f"{wanted.low} <= version <= {wanted.high}"


def negated(test: str) -> str:
    """The Python expression of the opposite test."""
    for sign, opposite in ((" >= ", " < "), (" == ", " != ")):
        if test.startswith("version" + sign):
            return test.replace(sign, opposite)
    return test.replace("version <= ", "version > ") if test.startswith("version <= ") else f"not {test}"


class StructEmitter:
    """The class of one struct of one message."""

    __slots__ = ("declared", "message", "out", "struct", "top")

    def __init__(self, message: Message, struct: Struct, out: Source) -> None:
        self.message = message
        self.struct = struct
        self.out = out
        self.top = struct is message.root
        self.declared: set[str] = set()  # locals of `decode` whose type has been stated

    # --- shape of the class ---

    @property
    def fields(self) -> list[Field]:
        """The fields of the struct in the order of the schema."""
        return self.struct.fields

    @property
    def class_name(self) -> str:
        """The name of the generated class."""
        return self.message.class_name(self.struct.name)

    def element_type(self, field: Field) -> str:
        """The Python type of one element of a field."""
        if field.is_struct:
            return self.message.class_name(field.element)
        if field.element in FIXED:
            return FIXED[field.element][3]
        return VARIABLE[field.element][0]

    def annotation(self, field: Field) -> str:
        """The Python type of a field."""
        if field.element == "records":
            self.out.use("Buffer")
        name = f"list[{self.element_type(field)}]" if field.array else self.element_type(field)
        return f"{name} | None" if field.nullable else name

    def default(self, field: Field) -> str:
        """Expression of the default value; a fresh object for lists and structs."""
        if field.default == "null":
            return "None"
        if field.array:
            return "[]"
        if field.is_struct:
            return f"{self.element_type(field)}()"
        if field.default is not None:
            return f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)
        if field.element == "uuid":
            self.out.use("ZERO_UUID")
        return FIXED[field.element][4] if field.element in FIXED else VARIABLE[field.element][1]

    def differs(self, field: Field) -> str:
        """Test that the field holds something else than its default."""
        default = self.default(field)
        if default == "None":
            return f"self.{field.attribute} is not None"
        if default == "[]" and not field.nullable:
            return f"self.{field.attribute}"
        if default in ("True", "False"):
            return f"self.{field.attribute}" if default == "False" else f"not self.{field.attribute}"
        return f"self.{field.attribute} != {default}"

    def emit(self) -> None:
        """Emit the class."""
        out = self.out
        out.add(f"class {self.class_name}:")
        out.depth += 1
        if self.top:
            self.constants()
        names = [f'"{field.attribute}"' for field in self.fields]
        out.listed("__slots__ = (", names, ",)" if len(names) == 1 else ")")
        out.add()
        out.add("__eq__ = message_eq")
        out.add("__repr__ = message_repr")
        out.add()
        self.constructor()
        out.add()
        self.decoder()
        out.add()
        self.encoder()
        out.depth -= 1

    def constants(self) -> None:
        """Emit the class attributes: key and versions."""
        message, out = self.message, self.out
        if message.key is not None:
            out.add(f"API_KEY: ClassVar[int] = {message.key}")
        if message.record_type is not None:
            out.add(f"RECORD_TYPE: ClassVar[int] = {message.record_type}")
        out.add(f"MIN_VERSION: ClassVar[int] = {message.versions.low}")
        out.add(f"MAX_VERSION: ClassVar[int] = {message.versions.high}")
        flexible = message.flexible.low if message.flexible else out.use("NEVER_FLEXIBLE")
        out.add(f"FLEXIBLE_FROM: ClassVar[int] = {flexible}")
        out.add()

    def constructor(self) -> None:
        """Emit `__init__` with the defaults of the schema."""
        out = self.out
        if not self.fields:
            out.indented("def __init__(self) -> None:", lambda: out.add("pass"))
            return
        out.add("def __init__(")
        out.add("    self,")
        for field in self.fields:
            annotation, default = self.annotation(field), self.default(field)
            if default == "[]":
                default = out.use("EMPTY")
            elif default.endswith("()"):
                annotation = f"{self.element_type(field)} | None"
                default = out.use("UNSET") if field.nullable else "None"
            out.add(f"    {field.attribute}: {annotation} = {default},")
        out.add(") -> None:")
        out.depth += 1
        for field in self.fields:
            name, default = field.attribute, self.default(field)
            if default == "[]":
                out.add(f"self.{name} = [] if {name} is EMPTY else {name}")
            elif default.endswith("()"):
                unset = "UNSET" if field.nullable else "None"
                out.add(f"self.{name} = {default} if {name} is {unset} else {name}")
            else:
                out.add(f"self.{name} = {name}")
        out.depth -= 1

    # --- both directions ---

    def halves(self) -> list[tuple[str | None, Versions, bool]]:
        """(head, versions, flexible?) of the classic and of the flexible part of a method's body."""
        versions, flexible = self.struct.versions, self.message.flexible.clip(self.struct.versions)
        if not flexible:
            return [(None, versions, False)]
        if flexible.covers(versions):
            return [(None, versions, True)]
        classic = Versions(versions.low, flexible.low - 1)
        return [(f"if version >= {flexible.low}:", flexible, True), ("else:", classic, False)]

    def body(self, emit: Callable[[Versions, bool], None]) -> None:
        """Emit code once per half: for the versions with classic and with flexible encoding."""
        for head, versions, flexible in self.halves():
            if head is None:
                emit(versions, flexible)
            else:
                self.out.indented(head, partial(emit, versions, flexible))

    def runs(self, known: Versions) -> Iterator[tuple[Versions, list[Field]]]:
        """Untagged fields in wire order, adjacent ones of the same versions together."""
        plain = [field for field in self.fields if field.versions.clip(known) and not field.tagged.clip(known)]
        for versions, run in groupby(plain, key=lambda field: field.versions.clip(known)):
            yield versions, list(run)

    def tagged(self, known: Versions) -> list[Field]:
        """The fields that are tagged in some of these versions, in the order of their tags."""
        return sorted((field for field in self.fields if field.tagged.clip(known)), key=lambda field: field.tag or 0)

    def absent(self, known: Versions) -> list[Field]:
        """Fields that none of these versions has."""
        return [field for field in self.fields if not field.versions.clip(known)]

    @staticmethod
    def fused(run: list[Field]) -> Iterator[list[Field]]:
        """Adjacent fields of fixed size together, all others alone."""
        for fixed, group in groupby(run, key=lambda field: field.element in FIXED and not field.array):
            if fixed:
                yield list(group)
            else:
                yield from ([field] for field in group)

    def nullable_cases(self, field: Field, known: Versions, emit: Callable[[bool], None]) -> None:
        """Emit for the versions in which the field may be null and for those in which it may not."""
        nullable = field.nullable.clip(known)
        test = condition(nullable, known) if nullable else None
        if not nullable or test is None:
            emit(bool(nullable))
            return
        self.out.indented(f"if {test}:", lambda: emit(True))
        self.out.indented("else:", lambda: emit(False))

    def minimum(self, field: Field, known: Versions, flexible: bool) -> int:
        """Least bytes of one element of an array."""
        if field.is_struct:
            size = minimum_size(self.message, self.message.struct(field.element), known, flexible)
        elif field.element in FIXED:
            size = FIXED[field.element][1]
        else:
            size = 1 if flexible else 2 if field.element == "string" else 4
        if size < 1:
            raise ValueError(f"{self.class_name}.{field.name}: elements without bytes")
        return size

    # --- decode ---

    def decoder(self) -> None:
        """Emit `decode`."""
        out = self.out
        out.add("@classmethod")
        out.add("def decode(cls, view: memoryview, position: int, version: int) -> tuple[Self, int]:")
        out.depth += 1
        if self.top:
            low, high = self.message.versions
            test = f"version != {low}" if low == high else f"not {low} <= version <= {high}"
            out.add(f"if {test}:")
            out.add(f'    raise {out.use("unsupported")}("{self.class_name}", version)')
        out.add("self = cls.__new__(cls)")
        if self.top:
            out.indented("try:", lambda: self.body(self.decode_half))
            out.add(f"except {out.use('DECODE_FAULTS')} as fault:")
            out.add(
                f'    raise {out.use("DecodeError")}(f"{self.class_name} version {{version}}: {{fault}}") from fault'
            )
        else:
            self.body(self.decode_half)
        out.add("return self, position")
        out.depth -= 1

    def decode_half(self, known: Versions, flexible: bool) -> None:
        """Emit the decoding of the classic or of the flexible versions."""
        out, start = self.out, len(self.out.lines)
        for field in self.absent(known):
            out.add(f"self.{field.attribute} = {self.default(field)}")
        for versions, run in self.runs(known):
            test = condition(versions, known)
            if test is None:
                self.decode_run(run, versions, flexible)
                continue
            out.indented(f"if {test}:", partial(self.decode_run, run, versions, flexible))
            out.add("else:")
            for field in run:
                out.add(f"    self.{field.attribute} = {self.default(field)}")
        if flexible:
            self.decode_tags(known)
        if len(out.lines) == start:
            out.add("pass")

    def decode_run(self, run: list[Field], known: Versions, flexible: bool) -> None:
        """Emit the decoding of consecutive fields that the same versions have."""
        for group in self.fused(run):
            field = group[0]
            if field.element in FIXED and not field.array:
                self.decode_fixed(group)
            else:
                self.decode_variable(field, known, flexible)

    def decode_fixed(self, group: list[Field]) -> None:
        """Emit one `struct.unpack_from` for consecutive fields of fixed size."""
        out = self.out
        call = f" = {out.packed('unpack', group)}(view, position)"
        targets = [f"self.{field.attribute}" for field in group]
        line = ", ".join(targets) + call
        if len(targets) == 1:
            out.add(f"({targets[0]},){call}")
        elif 4 * out.depth + len(line) <= WIDTH:
            out.add(line)
        else:
            out.listed("(", targets, f"){call}")
        out.add(f"position += {sum(FIXED[field.element][1] for field in group)}")

    def decode_variable(self, field: Field, known: Versions, flexible: bool) -> None:
        """Emit the decoding of a field of variable size."""
        flexible = flexible and not field.never_flexible
        if field.array:
            self.nullable_cases(field, known, lambda nullable: self.decode_array(field, known, flexible, nullable))
        elif field.is_struct:
            self.nullable_cases(field, known, lambda nullable: self.decode_struct(field, nullable))
        else:
            self.nullable_cases(field, known, lambda nullable: self.decode_bytes(field, flexible, nullable))

    def decode_bytes(self, field: Field, flexible: bool, nullable: bool) -> None:
        """Emit the decoding of strings, bytes or records."""
        reader = self.out.use(f"read{'_compact' * flexible}{'_nullable' * nullable}_{field.element}")
        self.out.add(f"self.{field.attribute}, position = {reader}(view, position)")

    def decode_struct(self, field: Field, nullable: bool) -> None:
        """Emit the decoding of a struct, which may be null."""
        out = self.out
        call = f"self.{field.attribute}, position = {self.element_type(field)}.decode(view, position"
        if not nullable:
            out.add(f"{call}, version)")
            return
        # Kafka's own generator marks null by -1 in place, but by 0 in a tagged field.
        out.add("if view[position] == 0:" if field.tag is not None else "if view[position] > 127:")
        out.add(f"    self.{field.attribute} = None")
        out.add("    position += 1")
        out.add("else:")
        out.add(f"    {call} + 1, version)")

    def decode_array(self, field: Field, known: Versions, flexible: bool, nullable: bool) -> None:
        """Emit the decoding of an array, its length checked first."""
        out = self.out
        reader = out.use(f"read{'_compact' * flexible}{'_nullable' * nullable}_count")
        out.add(f"count, position = {reader}(view, position, {self.minimum(field, known, flexible)})")
        if not nullable:
            self.decode_items(field, flexible)
            return
        out.add("if count < 0:")
        out.add(f"    self.{field.attribute} = None")
        out.indented("else:", lambda: self.decode_items(field, flexible))

    def decode_items(self, field: Field, flexible: bool) -> None:
        """Emit the loop over the elements of an array."""
        out, name = self.out, f"self.{field.attribute}"
        if field.element == "uuid":
            out.add(f"{name}, position = {out.use('read_uuids')}(view, position, count)")
        elif field.element in FIXED:
            code, size = FIXED[field.element][:2]
            out.add(f'{name} = list(unpack_from(f">{{count}}{code}", view, position))')
            out.add("position += count" + f" * {size}" * (size > 1))
        else:
            local = field.attribute
            annotation = "" if local in self.declared else f": list[{self.element_type(field)}]"
            self.declared.add(local)
            out.add(f"{local}{annotation} = []")
            out.add("for _ in range(count):")
            if field.is_struct:
                call = f"{self.element_type(field)}.decode(view, position, version)"
            else:
                call = out.use(f"read{'_compact' * flexible}_{field.element}") + "(view, position)"
            out.add(f"    item_{local}, position = {call}")
            out.add(f"    {local}.append(item_{local})")
            out.add(f"{name} = {local}")

    def decode_tags(self, known: Versions) -> None:
        """Emit the decoding of the tag section; unknown tags are skipped."""
        out, tagged = self.out, self.tagged(known)
        if not tagged:
            out.add(f"position = {out.use('skip_tags')}(view, position)")
            return
        for field in tagged:
            out.add(f"self.{field.attribute} = {self.default(field)}")
        out.add(f"tags, position = {out.use('read_unsigned_varint')}(view, position)")
        out.add("for _ in range(tags):")
        out.depth += 1
        out.add(f"tag, position, end = {out.use('read_tag')}(view, position)")
        word = "if"
        for field in tagged:
            test = condition(field.tagged.clip(known), known)
            head = f"{word} tag == {field.tag}" + (f" and {test}" if test else "")
            out.indented(f"{head}:", partial(self.decode_run, [field], field.tagged.clip(known), True))
            word = "elif"
        out.add("else:")
        out.add("    position = end")
        out.add("if position != end:")
        out.add(f"    raise {out.use('tag_mismatch')}(tag, position, end)")
        out.depth -= 1

    # --- encode ---

    def encoder(self) -> None:
        """Emit `encode`."""
        out = self.out
        out.add("def encode(self, out: bytearray, version: int) -> None:")
        out.depth += 1
        if self.top:
            out.indented("try:", lambda: self.body(self.encode_half))
            out.add(f"except {out.use('ENCODE_FAULTS')} as fault:")
            out.add(
                f'    raise {out.use("EncodeError")}(f"{self.class_name} version {{version}}: {{fault}}") from fault'
            )
        else:
            self.body(self.encode_half)
        out.depth -= 1

    def refuse(self, fields: list[Field], word: str = "if") -> None:
        """Complain about values that the version at hand cannot carry."""
        for field in fields:
            if not field.ignorable:
                self.out.add(f"{word} {self.differs(field)}:")
                call = f'{self.out.use("lacking")}("{self.class_name}", "{field.attribute}", version)'
                self.out.add(f"    raise {call}")

    def encode_half(self, known: Versions, flexible: bool) -> None:
        """Emit the encoding of the classic or of the flexible versions."""
        out, start = self.out, len(self.out.lines)
        self.refuse(self.absent(known))
        for versions, run in self.runs(known):
            test = condition(versions, known)
            if test is None:
                self.encode_run(run, versions, flexible, "out")
                continue
            out.indented(f"if {test}:", partial(self.encode_run, run, versions, flexible, "out"))
            self.refuse(run, "elif")
        if flexible:
            self.encode_tags(known)
        if len(out.lines) == start:
            out.add("pass")

    def encode_run(self, run: list[Field], known: Versions, flexible: bool, into: str) -> None:
        """Emit the encoding of consecutive fields that the same versions have."""
        for group in self.fused(run):
            field = group[0]
            if field.element in FIXED and not field.array:
                values = [f"self.{each.attribute}" for each in group]
                self.out.listed(f"{into} += {self.out.packed('pack', group)}(", values, ")")
            else:
                self.encode_variable(field, known, flexible, into)

    def encode_variable(self, field: Field, known: Versions, flexible: bool, into: str) -> None:
        """Emit the encoding of a field of variable size."""
        out, flexible = self.out, flexible and not field.never_flexible
        if field.array:
            self.nullable_cases(field, known, lambda nullable: self.encode_array(field, flexible, nullable, into))
        elif field.is_struct:
            self.nullable_cases(field, known, lambda nullable: self.encode_struct(field, nullable, into))
        else:
            kind = "bytes" if field.element == "records" else field.element
            self.nullable_cases(
                field,
                known,
                lambda nullable: out.add(
                    out.use(f"write{'_compact' * flexible}{'_nullable' * nullable}_{kind}")
                    + f"({into}, self.{field.attribute})"
                ),
            )

    def encode_struct(self, field: Field, nullable: bool, into: str) -> None:
        """Emit the encoding of a struct, which may be null."""
        out, name = self.out, f"self.{field.attribute}"
        if not nullable:
            if field.nullable:
                out.add(f"if {name} is None:")
                out.add(f'    raise {out.use("lacking")}("{self.class_name}", "a null {field.attribute}", version)')
            out.add(f"{name}.encode({into}, version)")
            return
        out.add(f"if {name} is None:")
        out.add(f"    {into}.append({255 if field.tag is None else 0})")
        out.add("else:")
        out.add(f"    {into}.append(1)")
        out.add(f"    {name}.encode({into}, version)")

    def encode_array(self, field: Field, flexible: bool, nullable: bool, into: str) -> None:
        """Emit the encoding of an array: length and elements."""
        out, name = self.out, f"self.{field.attribute}"
        # A tagged field that is null by default is written only when it is not null.
        if not field.nullable or (field.tag is not None and self.default(field) == "None"):
            self.encode_items(field, flexible, into)
            return
        out.add(f"if {name} is None:")
        if not nullable:
            out.add(f'    raise {out.use("lacking")}("{self.class_name}", "a null {field.attribute}", version)')
            self.encode_items(field, flexible, into)
            return
        out.add(f"    {into}.append(0)" if flexible else f'    {into} += b"\\xff\\xff\\xff\\xff"')
        out.indented("else:", lambda: self.encode_items(field, flexible, into))

    def encode_items(self, field: Field, flexible: bool, into: str) -> None:
        """Emit the loop over the elements of an array."""
        out, name = self.out, f"self.{field.attribute}"
        out.add(out.use(f"write{'_compact' * flexible}_count") + f"({into}, {name})")
        if field.element == "uuid":
            out.add(f'{into} += b"".join({name})')
        elif field.element in FIXED:
            out.add(f'{into} += pack(f">{{len({name})}}{FIXED[field.element][0]}", *{name})')
        else:
            item = f"item_{field.attribute}"
            out.add(f"for {item} in {name}:")
            if field.is_struct:
                out.add(f"    {item}.encode({into}, version)")
            else:
                kind = "bytes" if field.element == "records" else field.element
                out.add("    " + out.use(f"write{'_compact' * flexible}_{kind}") + f"({into}, {item})")

    def encode_tags(self, known: Versions) -> None:
        """Emit the tag section: fields that differ from their defaults, in the order of their tags."""
        out, tagged = self.out, self.tagged(known)
        if not tagged:
            out.add("out.append(0)")
            return
        out.add("count = 0")
        out.add("tags = bytearray()")
        for field in tagged:
            test = condition(field.tagged.clip(known), known)
            differs = self.differs(field)
            if test is not None and not field.ignorable:
                out.add(f"if {negated(test)} and {differs}:")
                out.add(f'    raise {out.use("lacking")}("{self.class_name}", "{field.attribute}", version)')
            out.add(f"if {differs}" + (f" and {test}:" if test else ":"))
            out.depth += 1
            out.add("value = bytearray()")
            self.encode_run([field], field.tagged.clip(known), True, "value")
            out.add(f"{out.use('write_tag')}(tags, {field.tag}, value)")
            out.add("count += 1")
            out.depth -= 1
        out.add("out.append(count)")
        out.add("out += tags")


def minimum_size(message: Message, struct: Struct, known: Versions, flexible: bool) -> int:
    """Least bytes that a struct takes in any of the versions `known`."""

    def size(field: Field, version: int) -> int:
        if version not in field.versions or version in field.tagged:
            return 0
        if field.array:
            return 1 if flexible else 4
        if field.is_struct:
            if version in field.nullable:
                return 1
            return minimum_size(message, message.struct(field.element), Versions(version, version), flexible)
        if field.element in FIXED:
            return FIXED[field.element][1]
        return 1 if flexible else 2 if field.element == "string" else 4

    low, high = known
    return min(sum(size(field, version) for field in struct.fields) for version in range(low, high + 1)) + flexible


def emit_module(messages: list[Message]) -> str:
    """Source text of the module that holds `messages`, in the formatter's style."""
    out = Source()
    for message in messages:
        for struct in (message.root, *message.structs.values()):
            out.add()
            out.add()
            StructEmitter(message, struct, out).emit()
    code = "\n".join(out.lines)
    head = Source()
    head.add('"""Generated by odradek.wire.generate; do not edit.')
    head.add()
    names = ", ".join(message.name for message in messages)
    head.add(f'{names}."""' if len(messages) < 3 else 'See the schema of the same name."""')
    head.add()
    head.add("from __future__ import annotations")
    head.add()
    functions = [name for name in ("pack", "unpack_from") if f"{name}(f" in code]
    wanted = (["Struct"] if out.formats else []) + functions
    if wanted:
        head.add(f"from struct import {', '.join(wanted)}")
    head.add("from typing import ClassVar, Self")
    head.add()
    head.add("from odradek.wire.message import message_eq, message_repr")
    if out.names:
        imports = sorted(out.names, key=lambda name: (not name.isupper(), name[0].islower(), name))
        head.listed("from odradek.wire.primitives import (", imports, ")")
        if head.lines[-1] != ")":
            head.lines[-1] = head.lines[-1].replace("(", "").replace(")", "")
    head.add()
    for name, text in sorted(out.formats.items()):
        method = "pack" if name.startswith("_pack") else "unpack_from"
        head.add(f'{name} = Struct("{text}").{method}')
    if not out.formats:
        head.lines.pop()
    return "\n".join([*head.lines, *out.lines]) + "\n"
