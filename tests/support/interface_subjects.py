"""What two sides of an interface can read in two ways.

A subject says what the interface declares, what the kernel and the device function do, and has ``@`` where the readings
differ. Sides that read alike, no matter which way, store P times Q; sides that do not store something else.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Subject(NamedTuple):
    """What two sides can read in two ways."""

    kind: str
    name: str
    readings: Sequence[tuple[str, str]]  # in place of @
    types: str  # what the interface defines, and
    declares: str  # declares
    kernel: str  # the kernel's statements
    device: str  # the definitions of the device function
    forward: str = ""  # a declaration of the type alone

    def interface(self, reading: str) -> str:
        """Return the interface's declarations with a reading."""
        return f"{self.types}\n{self.declares}\n".replace("@", reading)


TYPES = (("int", "float"), ("float", "int"), ("unsigned", "float"), ("float", "double"), ("double", "float"),
          ("short", "float"), ("long long", "double"), ("float", "unsigned char"))  # fmt: skip
SIZES = (("2", "4"), ("4", "8"), ("3", "2"), ("8", "5"))


class _Body(NamedTuple):
    """A structure that two sides can read in two ways."""

    kind: str
    name: str
    readings: Sequence[tuple[str, str]]
    before: str
    members: str
    fill: str
    read: str


_X, _BY_Q = "s.x = P;", "s.x * Q"
_BODIES = (
    _Body("type", "member", TYPES, "", "@ x;", _X, _BY_Q),
    _Body("type", "member of a member", TYPES, "struct In { char c; @ x; };", "In in;", "s.in.x = P;", "s.in.x * Q"),
    _Body("type", "union", TYPES, "union U { @ x; int raw; };", "U u;", "s.u.x = P;", "s.u.x * Q"),
    _Body("type", "template argument", TYPES, "template <class T> struct L { T x; };", "L<@> l;", "s.l.x = P;",
          "s.l.x * Q"),
    _Body("type", "callback", TYPES[:6], "", "@ (*op)(int);", "s.op = [](int n) -> @ { return n * P; };",
          "s.op(Q)"),
    _Body("type", "array size", SIZES, "", "float pad[@]; float x;", _X, _BY_Q),
    _Body("type", "inner array size", SIZES, "", "float v[2][@];", "s.v[1][1] = P;", "s.v[1][1] * Q"),
    _Body("type", "size of a template", SIZES, "template <int N> struct L { float v[N]; };", "L<@> l; float x;", _X,
          _BY_Q),
    _Body("type", "default argument of a template", SIZES, "template <int N = @> struct L { float v[N]; };",
          "L<> l; float x;", _X, _BY_Q),
    _Body("type", "constant", SIZES, "constexpr int N = @;", "float v[8];", "s.v[N - 1] = P;", "s.v[N - 1] * Q"),
    _Body("type", "bits", (("4", "12"), ("9", "5")), "", "unsigned a : @, x : 8;", _X, _BY_Q),
    _Body("type", "alignment", (("4", "16"), ("8", "32")), "struct alignas(@) In { float x; };", "char c; In in;",
          "s.in.x = P;", "s.in.x * Q"),
    _Body("order", "members", (("int n; float x;", "float x; int n;"),), "", "@", "s.n = P; s.x = Q;", "s.n * s.x"),
    _Body("order", "members of one type", (("float x, y;", "float y, x;"),), "", "@", "s.x = P; s.y = 1;", _BY_Q),
    _Body("order", "members of many types", (("char c; double x; float y;", "double x; float y; char c;"),), "", "@",
          _X, _BY_Q),
    _Body("order", "bases", (("A, B", "B, A"),), "struct A { float x; }; struct B { float y; }; struct T : @ { };",
          "T t;", "s.t.x = P; s.t.y = 1;", "s.t.x * Q"),
    _Body("order", "template arguments", (("int, float", "float, int"),),
          "template <class A, class B> struct L { A x; B y; };", "L<@> l;", "s.l.x = P; s.l.y = Q;", "s.l.x * s.l.y"),
    _Body("enumerator", "member's enumerators", (("MIN, MAX", "MAX, MIN"), ("MIN, MAX", "MIN, MID, MAX")),
          "enum mode { @ };", "mode m;", "s.m = MAX;", "(s.m == MAX ? P : 1) * Q"),
    _Body("enumerator", "underlying type", (("unsigned char", "int"), ("long long", "short")), "enum mode : @ { MIN };",
          "mode m; unsigned char x;", _X, _BY_Q),
    _Body("enumerator", "size", SIZES, "enum { N = @ };", "float v[N]; float x;", _X, _BY_Q),
    _Body("enumerator", "bits of flags", (("1", "4"), ("2", "16")), "enum flags { FEW = 8, MANY = @ };", "int set;",
          "s.set = MANY;", "(s.set & MANY ? P : 1) * Q"),
)  # fmt: skip
# Pragmas tell these apart.
_PADDED = (
    _Body("pragma", "member", (("", ""),), "", "char c; float x;", _X, _BY_Q),
    _Body("pragma", "wide member", (("", ""),), "", "char c; double x;", _X, _BY_Q),
    _Body("pragma", "member of a member", (("", ""),), "struct In { short a; float x; };", "In in;", "s.in.x = P;",
          "s.in.x * Q"),
    _Body("pragma", "base", (("", ""),), "struct B { char c; int x; };", "B b;", "s.b.x = P;", "s.b.x * Q"),
    _Body("pragma", "member of a template", (("", ""),), "template <class T> struct L { char c; T x; };", "L<float> l;",
          "s.l.x = P;", "s.l.x * Q"),
)  # fmt: skip

# How a structure travels, as: declaration, kernel, device; the structure is ``s``.
_TRAVELS = {
    "pointer": ("__device__ float f(const S* p);", "S s = {}; FILL *o = f(&s);",
                "__device__ float f(const S* p) { const S& s = *p; return READ; }"),
    "reference": ("__device__ float f(const S& s);", "S s = {}; FILL *o = f(s);",
                  "__device__ float f(const S& s) { return READ; }"),
    "value": ("__device__ float f(S s);", "S s = {}; FILL *o = f(s);", "__device__ float f(S s) { return READ; }"),
    "result": ("__device__ S f();", "const S s = f(); *o = READ;", "__device__ S f() { S s = {}; FILL return s; }"),
    "output": ("__device__ void f(S* p);", "S s = {}; f(&s); *o = READ;",
               "__device__ void f(S* p) { S& s = *p; FILL }"),
    "array": ("__device__ float f(const S* p);", "S all[2] = {}; S& s = all[1]; FILL *o = f(all);",
              "__device__ float f(const S* p) { const S& s = p[1]; return READ; }"),
    "variable": ("extern __device__ S box;\n__device__ float f();", "S& s = box; FILL *o = f();",
                 "__device__ S box;\n__device__ float f() { const S& s = box; return READ; }"),
    "template": ("template <class T> struct W { char c; T s; };\n__device__ float f(const W<S>* p);",
                 "W<S> w = {}; S& s = w.s; FILL *o = f(&w);",
                 "__device__ float f(const W<S>* p) { const S& s = p->s; return READ; }"),
    "instance": ("template <class T> __device__ float f(const T* p);", "S s = {}; FILL *o = f(&s);",
                 ("template <class T> __device__ float f(const T* p) { const T& s = *p; return READ; }\n"
                  "template __device__ float f<S>(const S*);")),
    "method": ("struct H { const S* p; __device__ float get() const; };",
               "S s = {}; FILL const H h = {&s}; *o = h.get();",
               "__device__ float H::get() const { const S& s = *p; return READ; }"),
    "function pointer": ("typedef float (*reader)(const S*);\n__device__ reader f();", "S s = {}; FILL *o = f()(&s);",
                         ("static __device__ float look(const S* p) { const S& s = *p; return READ; }\n"
                          "__device__ reader f() { return look; }")),
}  # fmt: skip


def _travelling(body: _Body) -> Iterator[Subject]:
    types = f"{body.before}\nstruct S {{ {body.members} }};"
    for name, (declares, *sides) in _TRAVELS.items():
        kernel, device = (side.replace("FILL", body.fill).replace("READ", body.read) for side in sides)
        yield Subject(body.kind, f"{body.name} by {name}", body.readings, types, declares, kernel, device, "struct S;")


_MODES = (("MIN, MAX", "MAX, MIN"), ("MIN, MAX", "MIN, MID, MAX"), ("MIN, MAX = 5", "MIN, MAX = 2"))
_PLAIN = (
    Subject("type", "result", TYPES, "", "__device__ @ f(int x);", "*o = f(P);",
            "__device__ @ f(int x) { return x * Q; }"),
    Subject("type", "parameter", TYPES, "", 'extern "C" __device__ float f(@ x);', "*o = f(P);",
            'extern "C" __device__ float f(@ x) { return x * Q; }'),
    Subject("type", "pointee", TYPES, "", 'extern "C" __device__ float f(const @* x);', "@ x = P; *o = f(&x);",
            'extern "C" __device__ float f(const @* x) { return *x * Q; }'),
    Subject("type", "pointee of a result", TYPES, "", "__device__ const @* f();", "*o = f()[1] * Q;",
            "static __device__ const @ values[] = {1, P};\n__device__ const @* f() { return values; }"),
    Subject("type", "variable", TYPES, "", "extern __device__ @ box;\n__device__ float f();", "box = P; *o = f();",
            "__device__ @ box;\n__device__ float f() { return box * Q; }"),
    Subject("type", "constant table", TYPES, "", "extern const __device__ @ table[2];", "*o = table[1] * Q;",
            "extern const __device__ @ table[2] = {1, P};"),
    Subject("type", "extent of a table", SIZES, "", "extern const __device__ float table[2][@];",
            "*o = table[1][0] * Q;", "extern const __device__ float table[2][@] = { {1, 1}, {P, 1} };"),
    Subject("type", "default argument", SIZES, "constexpr float K = @;", "__device__ float f(float x, float k = K);",
            "*o = f(P);", "__device__ float f(float x, float k) { return x * (k / K) * Q; }"),
    Subject("order", "parameters", (("int n, float x", "float x, int n"),), "",
            'extern "C" __device__ float f(@);', "*o = f(P, Q);",
            'extern "C" __device__ float f(@) { return n * x; }'),
    Subject("enumerator", "parameter", _MODES, "enum mode : int { @ };", "__device__ float f(mode m);", "*o = f(MAX);",
            "__device__ float f(mode m) { return m == MAX ? P * Q : 1; }", "enum mode : int;"),
    Subject("enumerator", "scoped parameter", _MODES, "enum class mode : int { @ };", "__device__ float f(mode m);",
            "*o = f(mode::MAX);", "__device__ float f(mode m) { return m == mode::MAX ? P * Q : 1; }",
            "enum class mode : int;"),
    Subject("enumerator", "result", _MODES, "enum mode : int { @ };", "__device__ mode f(int x);",
            "*o = f(1) == MAX ? P * Q : 1;", "__device__ mode f(int x) { return MAX; }", "enum mode : int;"),
    Subject("enumerator", "of a class", _MODES, "struct E { enum mode { @ }; };", "__device__ float f(E::mode m);",
            "*o = f(E::MAX);", "__device__ float f(E::mode m) { return m == E::MAX ? P * Q : 1; }", "struct E;"),
)  # fmt: skip
SUBJECTS = (*_PLAIN, *(subject for body in _BODIES for subject in _travelling(body)))
PADDED = tuple(subject for body in _PADDED for subject in _travelling(body))
