#!/usr/bin/env python3
"""Makes C tables and a manual page from a varlink interface description.

  gen-interface.py --header H --source C IDL    the description as text, parameter structs and their dispatch tables
                                                (wire/dispatch.h), enums, and checks of replies (wire/schema.h)
  gen-interface.py --manual SCD IDL             an scdoc(5) page of section 7

The grammar is that of varlink.org ("Interface Definition"), narrowed to what systemd's parser takes too: comments
stand on lines of their own, directly before what they explain; no trailing commas, no container in a container.
"""

import argparse
import re
import sys

SCALARS = ("bool", "int", "float", "string", "object")
TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<comment>#[^\n]*)|(?P<arrow>->)|(?P<map>\[string\])|(?P<array>\[\])|"
    r"(?P<interface>[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9][A-Za-z0-9-]*)+)|"
    r"(?P<name>[A-Za-z](?:_?[A-Za-z0-9])*)|(?P<punct>[():,?]))"
)


class Fault(Exception):
    pass


class Type:
    """kind: a scalar's name, "named", "enum", "struct", "array" or "map"."""

    def __init__(self, kind, name=None, fields=None, values=None, element=None):
        self.kind = kind
        self.name = name
        self.fields = fields
        self.values = values
        self.element = element
        self.optional = False


class Field:
    def __init__(self, name, kind, comment):
        self.name = name
        self.type = kind
        self.comment = comment


class Symbol:
    """A type, method or error of the interface."""

    def __init__(self, what, name, comment):
        self.what = what
        self.name = name
        self.comment = comment
        self.type = None  # of a type; the parameters of a method or error
        self.reply = None


class Parser:
    def __init__(self, text, path):
        self.text = text
        self.path = path
        self.tokens = []
        self.position = 0
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = TOKEN.match(text, at)
            if not match:
                raise Fault(self.where(at) + ": unexpected character %r" % text[at])
            kind = match.lastgroup
            self.tokens.append((kind, match.group(kind), match.start(kind)))
            at = match.end()
        self.tokens.append(("end", "", end))

    def where(self, at):
        return "%s:%d" % (self.path, self.text.count("\n", 0, at) + 1)

    def fail(self, what):
        kind, value, at = self.tokens[self.position]
        raise Fault("%s: %s expected, found %r" % (self.where(at), what, value))

    def peek(self):
        return self.tokens[self.position]

    def take(self, kind, value=None):
        token = self.tokens[self.position]
        if token[0] != kind or (value is not None and token[1] != value):
            self.fail(value or kind)
        self.position += 1
        return token[1]

    def take_if(self, kind, value=None):
        token = self.tokens[self.position]
        if token[0] == kind and (value is None or token[1] == value):
            self.position += 1
            return True
        return False

    def comments(self):
        """Consecutive comment lines; those above an empty line explain nothing in particular but the interface."""
        lines = []
        last = None
        while self.peek()[0] == "comment":
            _, value, at = self.peek()
            line_start = self.text.rfind("\n", 0, at) + 1
            if self.text[line_start:at].strip():
                raise Fault(self.where(at) + ": a comment must stand on a line of its own")
            if last is not None and "\n\n" in self.text[last:at]:
                lines = []
            lines.append(value[1:].strip())
            last = at
            self.position += 1
        return lines

    def parse_type(self, contained=False):
        optional = self.take_if("punct", "?")
        if optional and contained:
            self.fail("a type that is not optional")
        kind, value, _ = self.peek()
        if kind in ("array", "map"):
            if contained:
                self.fail("a type that is no container")
            self.position += 1
            result = Type(kind, element=self.parse_type(contained=True))
        elif kind == "punct" and value == "(":
            if contained:
                self.fail("a named type")
            result = self.parse_body(allow_empty=False)
        else:
            name = self.take("name")
            result = Type(name) if name in SCALARS else Type("named", name=name)
        result.optional = optional
        return result

    def parse_body(self, allow_empty):
        """A struct or an enum; empty parentheses are a struct."""
        self.take("punct", "(")
        fields, values = [], []
        if self.peek()[1] != ")" or not allow_empty:
            while True:
                comment = self.comments()
                name = self.take("name")
                if self.take_if("punct", ":"):
                    fields.append(Field(name, self.parse_type(), comment))
                else:
                    values.append(Field(name, None, comment))
                if not self.take_if("punct", ","):
                    break
        self.take("punct", ")")
        if fields and values:
            self.fail("either fields with types or names alone")
        names = [f.name for f in fields + values]
        if len(set(names)) != len(names):
            self.fail("a list of different names before this")
        return Type("enum", values=values) if values else Type("struct", fields=fields)

    def parse(self):
        comment = self.comments()
        self.take("name", "interface")
        interface = Interface(self.take("interface"), comment, self.text)
        while True:
            comment = self.comments()
            if self.peek()[0] == "end":
                break
            what = self.take("name")
            if what not in ("type", "method", "error"):
                self.position -= 1
                self.fail("type, method or error")
            name = self.take("name")
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
                self.position -= 1
                self.fail("a name that starts upper-case and has letters and digits only")
            symbol = Symbol(what, name, comment)
            symbol.type = self.parse_body(allow_empty=what != "type")
            if what == "method":
                self.take("arrow")
                symbol.reply = self.parse_body(allow_empty=True)
            interface.add(symbol, self)
        interface.resolve()
        return interface


class Interface:
    def __init__(self, name, comment, text):
        self.name = name
        self.comment = comment
        self.text = text
        self.symbols = []
        self.short = name.rsplit(".", 1)[1]

    def add(self, symbol, parser):
        if any(s.name == symbol.name for s in self.symbols):
            parser.fail("a name other than %s, which is taken," % symbol.name)
        self.symbols.append(symbol)

    def all(self, what):
        return [s for s in self.symbols if s.what == what]

    def type(self, name):
        for symbol in self.all("type"):
            if symbol.name == name:
                return symbol
        raise Fault("type %s is used but not defined" % name)

    def resolve(self):
        def walk(kind):
            if kind.kind == "named":
                self.type(kind.name)
            for field in kind.fields or []:
                walk(field.type)
            if kind.element:
                walk(kind.element)

        for symbol in self.symbols:
            walk(symbol.type)
            if symbol.reply:
                walk(symbol.reply)


def snake(name):
    """idleTTLUSec -> idle_ttl_usec: units of time are one word."""
    name = name.replace("USec", "Usec").replace("NSec", "Nsec")
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", name).lower()


def c_string(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if not escaped.isascii():
        escaped = "".join(c if c.isascii() else "".join('\\%03o' % b for b in c.encode()) for c in escaped)
    return '"' + escaped + '"'


# C type, parser and JSON type of each parameter type.
PARAMETER = {
    "string": ("char *", "dispatch_string", "json_type_string"),
    "int": ("OptionalInt ", "dispatch_optional_int", "json_type_int"),
    "float": ("OptionalDouble ", "dispatch_optional_double", "json_type_double"),
    "bool": ("OptionalBool ", "dispatch_optional_bool", "json_type_boolean"),
    "[]string": ("char **", "dispatch_strv", "json_type_array"),
}


def parameter_kind(method, field):
    kind = field.type.kind
    if kind == "array" and field.type.element.kind == "string":
        kind = "[]string"
    if kind not in PARAMETER:
        raise Fault("method %s, parameter %s: no parser for this type of parameter" % (method.name, field.name))
    return kind


class Generator:
    def __init__(self, interface):
        self.i = interface
        self.prefix = snake(interface.short)  # manager
        self.upper = self.prefix.upper()
        self.out = []

    def emit(self, text=""):
        self.out.append(text)

    def flush(self, path):
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(self.out) + "\n")
        self.out = []

    def enums(self):
        return [s for s in self.i.all("type") if s.type.kind == "enum"]

    def header(self, path):
        p, u = self.prefix, self.upper
        self.emit("/* Made from the description of %s by tools/gen-interface.py. */" % self.i.name)
        self.emit("#pragma once\n\n#include <errno.h>\n")
        self.emit('#include "base/json.h"\n#include "base/text.h"\n#include "wire/dispatch.h"\n')
        self.emit('#define %s_INTERFACE "%s"' % (u, self.i.name))
        for what in ("method", "error"):
            for s in self.i.all(what):
                macro = "%s_%s_%s" % (u, what.upper(), snake(s.name).upper())
                self.emit('#define %s "%s.%s"' % (macro, self.i.name, s.name))
        self.emit("\nextern const char %s_interface_description[];" % p)
        for s in self.enums():
            name = self.i.short + s.name
            base = "%s_%s" % (u, snake(s.name).upper())
            self.emit("\ntypedef enum %s {" % name)
            for value in s.type.values:
                self.emit("        %s_%s," % (base, snake(value.name).upper()))
            self.emit("        _%s_MAX,\n        _%s_INVALID = -EINVAL,\n} %s;" % (base, base, name))
            self.emit("/* NULL and %s for what is none of them. */" % ("_" + base + "_INVALID"))
            self.emit("const char *%s_%s_to_string(%s s);" % (p, snake(s.name), name))
            self.emit("%s %s_%s_from_string(const char *s);" % (name, p, snake(s.name)))
        for m in self.i.all("method"):
            name = "%s%sParameters" % (self.i.short, m.name)
            self.emit("\ntypedef struct %s {" % name)
            for f in m.type.fields:
                self.emit("        %s%s;" % (PARAMETER[parameter_kind(m, f)][0], snake(f.name)))
            if not m.type.fields:
                self.emit("        char unused;")
            self.emit("} %s;" % name)
            self.emit("extern const DispatchField %s_%s_fields[];" % (p, snake(m.name)))
            self.emit("void %s_%s_parameters_done(void *p);" % (p, snake(m.name)))
        self.emit(
            "\n/* Whether a reply to the method, or the parameters of an error, are what the interface says (NULL: none).\n"
            " * The names are full ones. -ENOENT for a name that the interface does not have; -EBADMSG with *ret_field (may be\n"
            " * NULL) naming the member, as a string that belongs to the object or is static. */"
        )
        self.emit("int %s_validate_reply(const char *method, struct json_object *parameters, const char **ret_field);" % p)
        self.emit("int %s_validate_error(const char *error, struct json_object *parameters, const char **ret_field);" % p)
        self.emit("/* The same for a method's parameters. */")
        self.emit("int %s_validate_call(const char *method, struct json_object *parameters, const char **ret_field);" % p)
        self.flush(path)

    def schema_type(self, kind):
        """A SchemaType initializer."""
        parts = []
        target = kind
        if kind.optional:
            parts.append(".optional = true")
        if kind.kind in ("array", "map"):
            parts.append(".container = SCHEMA_%s" % kind.kind.upper())
            target = kind.element
        if target.kind == "named":
            symbol = self.i.type(target.name)
            if symbol.type.kind == "enum":
                parts += [".kind = SCHEMA_ENUM", ".values = %s_values" % snake(symbol.name)]
            else:
                parts += [".kind = SCHEMA_STRUCT", ".fields = type_%s" % snake(symbol.name)]
        elif target.kind in ("struct", "enum"):
            raise Fault("anonymous types have no tables: name the type")
        else:
            parts.append(".kind = SCHEMA_%s" % target.kind.upper())
        return "{ " + ", ".join(parts) + " }"

    def schema_table(self, name, struct):
        self.emit("static const SchemaField %s[%d] = {" % (name, len(struct.fields) + 1))
        for f in struct.fields:
            self.emit('        { "%s", %s },' % (f.name, self.schema_type(f.type)))
        self.emit("        { NULL },\n};")

    def source_enums(self):
        p = self.prefix
        for s in self.enums():
            name = self.i.short + s.name
            base = "%s_%s" % (self.upper, snake(s.name).upper())
            table = "%s_values" % snake(s.name)
            self.emit("\nstatic const char *const %s[] = {" % table)
            for value in s.type.values:
                self.emit('        [%s_%s] = "%s",' % (base, snake(value.name).upper(), value.name))
            self.emit("        NULL,\n};\n")
            self.emit("const char *%s_%s_to_string(%s s)\n{" % (p, snake(s.name), name))
            self.emit("        return (int) s >= 0 && s < _%s_MAX ? %s[s] : NULL;\n}\n" % (base, table))
            self.emit("%s %s_%s_from_string(const char *s)\n{" % (name, p, snake(s.name)))
            self.emit("        for (int i = 0; s && i < _%s_MAX; i++)" % base)
            self.emit("                if (streq(s, %s[i]))\n                        return (%s) i;" % (table, name))
            self.emit("        return _%s_INVALID;\n}" % base)

    def source_methods(self):
        p = self.prefix
        for m in self.i.all("method"):
            name = "%s%sParameters" % (self.i.short, m.name)
            self.emit("\nconst DispatchField %s_%s_fields[] = {" % (p, snake(m.name)))
            for f in m.type.fields:
                _, parser, json_type = PARAMETER[parameter_kind(m, f)]
                flags = "0" if f.type.optional else "DISPATCH_MANDATORY"
                self.emit(
                    '        { "%s", %s, offsetof(%s, %s), %s, %s },' % (f.name, parser, name, snake(f.name), json_type, flags)
                )
            self.emit("        { NULL },\n};\n")
            self.emit("void %s_%s_parameters_done(void *p)\n{" % (p, snake(m.name)))
            owned = [f for f in m.type.fields if parameter_kind(m, f) in ("string", "[]string")]
            if owned:
                self.emit("        %s *q = p;\n" % name)
            for f in owned:
                if parameter_kind(m, f) == "string":
                    self.emit("        free(q->%s);\n        q->%s = NULL;" % (snake(f.name), snake(f.name)))
                else:
                    self.emit("        q->%s = strv_free(q->%s);" % (snake(f.name), snake(f.name)))
            self.emit("}")

    def source(self, path):
        p = self.prefix
        self.emit("/* Made from the description of %s by tools/gen-interface.py. */" % self.i.name)
        self.emit("#include <stddef.h>\n#include <stdlib.h>\n")
        self.emit('#include "wire/manager-interface.h"\n#include "wire/schema.h"\n')
        self.emit("const char %s_interface_description[] =" % p)
        lines = self.i.text.splitlines(keepends=True)
        self.emit("\n".join("        " + c_string(line).replace("\n", "\\n") for line in lines) + ";")
        self.source_enums()
        self.source_methods()
        self.emit()
        structs = [s for s in self.i.all("type") if s.type.kind == "struct"]
        for s in structs:
            self.emit("static const SchemaField type_%s[%d];" % (snake(s.name), len(s.type.fields) + 1))
        for s in structs:
            self.schema_table("type_%s" % snake(s.name), s.type)
        for m in self.i.all("method"):
            self.schema_table("call_%s" % snake(m.name), m.type)
            self.schema_table("reply_%s" % snake(m.name), m.reply)
        for e in self.i.all("error"):
            self.schema_table("error_%s" % snake(e.name), e.type)
        for table, what, prefix in (("call", "method", "call"), ("reply", "method", "reply"), ("error", "error", "error")):
            symbols = self.i.all(what)
            self.emit("static const SchemaSymbol %s_symbols[%d] = {" % (table, len(symbols) + 1))
            for s in symbols:
                self.emit('        { "%s.%s", %s_%s },' % (self.i.name, s.name, prefix, snake(s.name)))
            self.emit("        { NULL },\n};")
        for table, name in (("reply", "method"), ("error", "error"), ("call", "method")):
            self.emit("\nint %s_validate_%s(const char *%s, struct json_object *parameters, const char **ret_field)" % (p, table, name))
            self.emit("{\n        return schema_check_symbol(%s_symbols, %s, parameters, ret_field);\n}" % (table, name))
        self.flush(path)


class Manual:
    """An scdoc(5) page: what a method takes and gives, in the order of the description."""

    def __init__(self, interface):
        self.i = interface
        self.out = []

    @staticmethod
    def escape(text):
        return re.sub(r"([\\*_#\[\]|<>~`])", r"\\\1", text)

    def paragraph(self, lines, indent=""):
        block = []
        for line in lines + [""]:
            if line:
                block.append(indent + self.escape(line))
            elif block:
                self.out += block + [""]
                block = []

    @staticmethod
    def type_text(kind):
        if kind.kind in ("array", "map"):
            inner = Manual.type_text(kind.element)
            text = ("array of " if kind.kind == "array" else "map of ") + inner
        else:
            text = kind.name or kind.kind
        return text + (", optional" if kind.optional else "")

    def fields(self, struct):
        for f in struct.fields:
            self.out.append("*%s* (%s)" % (self.escape(f.name), self.type_text(f.type)))
            text = " ".join(f.comment)
            if text:
                self.out.append("\t" + self.escape(text[0].upper() + text[1:]) + ("" if text.endswith(".") else "."))
            self.out.append("")

    def heading(self, symbol):
        self.out += ["## " + symbol.name, ""]
        text = list(symbol.comment)
        if text:
            text[0] = text[0][0].upper() + text[0][1:]
            if not text[-1].endswith((".", ":")):
                text[-1] += "."
        self.paragraph(text)

    def write(self, path):
        i = self.i
        self.out += ['%s(7) "iloader"' % i.name, "", "# NAME", "", "%s - varlink interface of the iloader manager" % i.name, ""]
        self.out += ["# DESCRIPTION", ""]
        self.paragraph(i.comment)
        self.out += [
            "Any varlink client can be used, for example:",
            "",
            "```",
            "varlinkctl info /run/iloader/%s" % i.name,
            "varlinkctl call /run/iloader/%s %s.List {}" % (i.name, i.name),
            "```",
            "",
            "Unknown parameters and values of a wrong type are refused with _org.varlink.service.InvalidParameter_, which",
            "names the parameter. Replies never hold null: what is absent is left out.",
            "",
            "# METHODS",
            "",
        ]
        for m in i.all("method"):
            self.heading(m)
            for title, struct in (("Parameters:", m.type), ("Reply:", m.reply)):
                self.out += [title + (" none." if not struct.fields else ""), ""]
                self.fields(struct)
        self.out += ["# ERRORS", ""]
        for e in i.all("error"):
            self.heading(e)
            self.fields(e.type)
        self.out += ["# TYPES", ""]
        for t in i.all("type"):
            self.heading(t)
            if t.type.kind == "enum":
                self.out += ["One of " + ", ".join("*%s*" % self.escape(v.name) for v in t.type.values) + ".", ""]
            else:
                self.fields(t.type)
        self.out += ["# SEE ALSO", "", "*iloader*(1), *iloaderctl*(1), *iloaderd*(8), *varlinkctl*(1)"]
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(self.out) + "\n")


def main():
    parser = argparse.ArgumentParser(description="make C tables or a manual page from a varlink interface description")
    parser.add_argument("--header")
    parser.add_argument("--source")
    parser.add_argument("--manual")
    parser.add_argument("idl")
    args = parser.parse_args()
    if bool(args.header) != bool(args.source) or not (args.header or args.manual):
        parser.error("--header and --source, or --manual, are needed")
    try:
        with open(args.idl, encoding="utf-8") as f:
            interface = Parser(f.read(), args.idl).parse()
        if args.header:
            generator = Generator(interface)
            generator.header(args.header)
            generator.source(args.source)
        if args.manual:
            Manual(interface).write(args.manual)
    except (Fault, OSError) as e:
        print("gen-interface.py: %s" % e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
