"""How C++ declares what fragments require: the compiler finds each form, and no other declaration of a name."""

import pytest

from jitlto.base.errors import BuildError
from tests.conftest import BuildFamily
from tests.support.errors import raises

_TOML = """[family]
name = "form"
[entrypoint.kern]
matrix = "one.json"
template = "kern.cu.jinja"
[device.part]
matrix = "one.json"
template = "part.cu.jinja"
interface = "part.cuh"
"""


def _family(interface: str, definition: str, kernel: str, before: str = "") -> dict[str, str]:
    return {
        "family.toml": _TOML,
        "one.json": "{}",
        "part.cuh": f"#pragma once\n{interface}\n",
        "part.cu.jinja": f"{definition}\n",
        "kern.cu.jinja": f"{before}\n__global__ void kern(float* x) {{ {kernel} }}\n",
    }


#: What an interface declares, how a group defines it, and what a kernel does with it.
FORMS = {
    "function as argument of a template": (
        "__device__ float g(float); template<float(*F)(float)> __device__ float f(float);",
        "__device__ float g(float x){return x;} template<> __device__ float f<&g>(float x){return g(x);}",
        "*x = f<&g>(1.f);",
    ),
    "numbers as arguments": (
        "template<bool b, char c, unsigned long u, long long l, unsigned char k, short s> __device__ float f(float);",
        "template<> __device__ float f<true,'a',3ul,-4ll,7,-2>(float x){return x;}",
        "*x = f<true,'a',3ul,-4ll,7,-2>(1.f);",
    ),
    "pack of types": (
        "template<class... T> struct tup{}; template<class... T> __device__ float f(tup<T...>, T...);",
        "template<> __device__ float f<int,float>(tup<int,float>, int a, float b){return a+b;}",
        "*x = f<int,float>(tup<int,float>{},1,2.f);",
    ),
    "arrays": (
        "__device__ float f(float (&)[2], float (*)[3], const int (&)[4]);",
        "__device__ float f(float (&a)[2], float (*b)[3], const int (&c)[4]){return a[0]+b[0][0]+c[0];}",
        "float a[2]={1,2}; float b[1][3]={}; int c[4]={}; *x = f(a,b,c);",
    ),
    "pointers to functions": (
        "__device__ float f(float (*)(int, const char*), void (*const*)(...));",
        '__device__ float f(float (*p)(int, const char*), void (*const*)(...)){return p(1,"");}',
        "*x = f(nullptr,nullptr);",
    ),
    "pointers to members": (
        (
            "struct S{int a; __device__ float m(float) const; __device__ float q(float) volatile&;}; "
            "__device__ float f(int S::*, float (S::*)(float) const, float (S::*)(float) volatile&);"
        ),
        (
            "__device__ float S::m(float x) const{return x;} __device__ float S::q(float x) volatile&{return "
            "x;} __device__ float f(int S::*, float (S::*)(float) const, float (S::*)(float) "
            "volatile&){return 1;}"
        ),
        "*x = f(&S::a,&S::m,&S::q);",
    ),
    "members, constructors, operators": (
        (
            "struct S{ int a; __device__ S(int); __device__ ~S(); __device__ float operator()(float) const&; "
            "__device__ operator int() const; __device__ float operator[](int) &&; static __device__ float "
            "s(int); __device__ S& operator=(const S&); };"
        ),
        (
            "__device__ S::S(int x):a(x){} __device__ S::~S(){} __device__ float S::operator()(float x) "
            "const&{return x;} __device__ S::operator int() const{return a;} __device__ float "
            "S::operator[](int) &&{return 1;} __device__ float S::s(int){return 1;} __device__ S& "
            "S::operator=(const S& o){a=o.a; return *this;}"
        ),
        "S s(1); S t(2); s=t; *x = s(1.f)+int(s)+S(3)[1]+S::s(1);",
    ),
    "private member": (
        (
            "class S{ float a; __device__ float p(float) const; friend __device__ float f(const S&); public: "
            "__device__ float q(float) const { return p(1)+a; } __device__ S(){a=1;} }; __device__ float "
            "f(const S&);"
        ),
        "__device__ float S::p(float x) const{return x;} __device__ float f(const S& s){return s.p(1);}",
        "S s; *x = f(s)+s.q(1);",
    ),
    "namespaces": (
        (
            "namespace n { __device__ float n(float); namespace m { __device__ float f(int, ...); } inline "
            "namespace v1 { __device__ float g(float); } }"
        ),
        (
            "namespace n { __device__ float n(float x){return x;} namespace m { __device__ float f(int, "
            "...){return 1;} } inline namespace v1 { __device__ float g(float x){return x;} } }"
        ),
        "*x = n::n(1)+n::m::f(1,2)+n::g(1);",
    ),
    "variables": (
        (
            "namespace n { extern __device__ float a[4]; extern __constant__ float c; template<class T> "
            'extern __device__ T t; extern __device__ const int k; } extern "C" __device__ float cv; extern '
            "__device__ float u[];"
        ),
        (
            "namespace n { __device__ float a[4]; __constant__ float c; template<class T> __device__ T t; "
            "template __device__ float t<float>; extern __device__ const int k; __device__ const int k=3;} "
            'extern "C" __device__ float cv; __device__ float cv; __device__ float u[3];'
        ),
        "*x = n::a[1]+n::c+n::k+cv+u[1];",
    ),
    "type of the toolkit that the sources alone include": (
        "template<class T> struct P{static_assert(sizeof(T)==2); T v[8];}; template<class T> __device__ int f(P<T>);",
        "#include <cuda_fp16.h>\ntemplate<> __device__ int f(P<__half> p){return __half2int_rz(p.v[1]);}",
        "*x = f(P<__half>{});",
        "#include <cuda_fp16.h>",
    ),
    "dependent result": (
        (
            "template<class T> struct R{using type=float;}; template<> struct R<int>{using type=double;}; "
            "template<class T> __device__ typename R<T>::type f(T);"
        ),
        "template<> __device__ typename R<int>::type f<int>(int x){return x;}",
        "*x = float(f(1));",
    ),
    "of C": (
        'extern "C" __device__ float cf(float, const int*); extern "C" { __device__ void cg(void); }',
        'extern "C" __device__ float cf(float x, const int*){return x;} extern "C" __device__ void cg(void){}',
        "*x = (cg(),cf(1,nullptr));",
    ),
    "class without a name": (
        "typedef struct { float x; } T; __device__ float f(T);",
        "__device__ float f(T t){return t.x;}",
        "*x = f(T{1});",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_what_an_interface_declares_is_found(build_family: BuildFamily, form: str) -> None:
    assert build_family(_family(*FORMS[form])).advice == ()


_PART = "__device__ float part(float x);"
_PART_DEFINED = "__device__ float part(float x) { return x; }"
#: What an interface declares beside ``part``, what the kernel declares in vain and calls, and how the group defines it.
UNDECLARED = {
    "operator": ("struct P { float x; };", "__device__ float operator+(P, P);", "*x = P{1} + P{2};",
                 "__device__ int operator+(P, P) { return 3; }"),
    "member of an own class": ("", "struct Q { __device__ float operator()(float) const; };", "*x = Q()(1);",
                               ("struct Q { __device__ int operator()(float) const; };\n"
                               "__device__ int Q::operator()(float) const { return 3; }")),
    "constructor of an own class": ("", "struct Q { float a, b; __device__ Q(float); };", "*x = Q(1).a;",
                                    ("struct Q { float b, a; __device__ Q(float); };\n"
                                    "__device__ Q::Q(float x) : b(1), a(x) {}")),
    "template for an own class": ("template <class T> __device__ float scaled(float);",
                                  "struct own { static constexpr int by = 7; };", "*x = scaled<own>(1);",
                                  ("struct own { static constexpr int by = 2; };\n"
                                  "template <> __device__ float scaled<own>(float x) { return x * own::by; }")),
    "function that another hides": ("namespace m { __device__ float of(float); }\nusing namespace m;",
                                    "__device__ float of(float);", "*x = ::of(1);",
                                    "__device__ int of(float) { return 3; }"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNDECLARED)
def test_what_no_interface_declares_is_refused(build_family: BuildFamily, kind: str) -> None:
    beside, declared, kernel, defined = UNDECLARED[kind]
    files = _family(f"{beside}\n{_PART}", f"{defined}\n{_PART_DEFINED}", f"*x = part(*x); {kernel}", declared)
    with raises(BuildError, "build-interface-undeclared"):
        build_family(files)
