/* The compiled core of launches: it checks and packs the arguments of one signature and calls cuLaunchKernelEx.
 *
 * A Signature is a table, one row a parameter; the launchers that have it are called as _called.c says. It handles the usual
 * launches itself; whatever it does not know, and every error, it leaves to the Python way, which repeats the whole launch.
 * So it has no error texts of its own, and both ways give the same results.
 *
 * Nothing here links with CUDA: the address of cuLaunchKernelEx is passed in.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef Py_BEGIN_CRITICAL_SECTION /* before Python 3.13, there is always a lock */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* Changes with what the functions of the module take: an extension built in place may be older than its callers. */
enum { INTERFACE = 15 };

/* --- the layouts of others --- */

typedef struct { /* CUlaunchConfig, cuda.h */
    unsigned int grid[3], block[3], shared_memory;
    void *stream;
    void *attributes;
    unsigned int attribute_count;
} LaunchConfig;

typedef int (*LaunchFunction)(const LaunchConfig *, void *kernel, void **parameters, void **extra);

typedef int (*CaptureFunction)(uintptr_t stream, int *is_capturing);

enum { INVALID_HANDLE = 400 }; /* CUresult, cuda.h */

/* Where kernels find their parameters is aligned to 16 bytes for every architecture, so that those of up to that alignment
 * have the offsets that they would have in a structure. Others, such as tensor maps, may be preceded by more bytes. */
enum { MOST_ALIGNMENT = 16 };

/* CU_LAUNCH_PARAM_BUFFER_POINTER and CU_LAUNCH_PARAM_BUFFER_SIZE, cuda.h */
#define BUFFER_POINTER ((void *)1)
#define BUFFER_SIZE ((void *)2)

typedef struct { /* dlpack.h */
    void *data;
    int32_t device_type, device_id, ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct { /* DLPackExchangeAPI, dlpack.h 1.2: what a type gives as __dlpack_c_exchange_api__ */
    struct { struct { uint32_t major, minor; } version; void *older; } header;
    void *allocate, *to_managed, *from_managed;
    int (*describe)(void *object, DLTensor *out); /* without owning it; may be NULL */
} ExchangeApi;

#define EXCHANGE_API "dlpack_exchange_api" /* the name of its capsule */

enum { DL_MAJOR = 1, DL_CUDA = 2, DL_COMPLEX = 5, DL_BOOL = 6 }; /* DLDeviceType and DLDataTypeCode; later codes have no name here */

/* --- the table --- */

typedef enum { POINTER, INTEGER, FLOAT, DOUBLE, BOOLEAN, CONVERTED } Kind;

typedef struct {
    Kind kind;
    int size, offset;   /* bytes; offset in the buffer of arguments */
    int is_signed;      /* of an integer */
    int code, bits;     /* of what a pointer points to, as DLPack has it; no bits: of any type */
    PyObject *dtype;    /* of what a pointer points to, as NumPy has it; NULL: of any type */
    PyObject *scalar;   /* NumPy's type of a number, or None */
    PyObject *convert;  /* the Python converter */
} Parameter;

typedef enum { UNKNOWN, CUPY, DLPACK, STREAM_ATTRIBUTE } Way;

typedef struct { /* an attribute of objects of one type */
    PyObject *name;
    getter get; /* NULL: look it up */
    void *closure;
} Attribute;

typedef struct { /* how to get the address of an array, or the handle of a stream, of one exact type */
    PyTypeObject *type, *data_type;
    Way way;
    Attribute handle;                         /* of a stream */
    Attribute dtype, c_contiguous, data, ptr; /* of CuPy's array; the last is of its data */
    int (*describe)(void *, DLTensor *);      /* of an ExchangeApi */
} Known;

enum { MOST_TYPES = 8, MOST_PARAMETERS = 128, MOST_BYTES = 4096 };

/* Names that are looked up, and the types; made once, for good. */
static struct {
    PyObject *c_contiguous, *data, *dtype, *is_conj, *is_neg, *ptr, *stream_protocol, *quick, *ask_launcher, *call;
    PyObject *shared_memory, *cluster, *cooperative, *programmatic;
    PyTypeObject *signature_type;
} shared;

typedef struct { /* of a launcher, beside its signature */
    unsigned long long kernel;             /* a CUkernel, for any context */
    _Atomic(unsigned long long) function; /* a CUfunction, of one context, which the driver launches faster; 0: none */
    long granted;                          /* bytes of dynamic shared memory with which the Python way has launched it */
    int fast;                              /* another kernel is to take its place, which graphs are to hold */
} Handles;

typedef struct {
    PyObject_VAR_HEAD
    LaunchFunction launch;
    CaptureFunction is_capturing;
    uintptr_t default_stream;
    unsigned generation;
    PyObject *learn_array, *learn_stream, *stream_type;
    PyObject *kept; /* a list of what these, the parameters and known refer to */
    Known known[MOST_TYPES];
    atomic_int known_count; /* rows are only added, and counted when they are complete */
    size_t size;   /* of the arguments */
    int is_buffer; /* they lie in it as the kernel finds them, and are passed as one */
    Py_ssize_t count;
    Parameter parameters[];
} Signature;

/* Raised in a forked process: what was made before launches and answers nothing there. */
static atomic_uint generation;

enum { FAILED = -1, OTHERWISE = 0, DONE = 1 }; /* FAILED: raise the exception that is set; OTHERWISE: the Python way */

/* An error means: the Python way; it finds and explains it. Not so what is not an error, such as KeyboardInterrupt. */
static int otherwise(void) {
    if (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return OTHERWISE;
    }
    return FAILED;
}

static inline int as_number(PyObject *owned, uint64_t *out) {
    if (owned == NULL) return otherwise();
    int is_number = PyLong_Check(owned);
    /* Not "unsigned long long", which CPython converts in three times the time; Linux has 64 bits for this one too. */
    uint64_t value = is_number ? PyLong_AsUnsignedLong(owned) : 0;
    Py_DECREF(owned);
    if (!is_number || (value == (uint64_t)-1 && PyErr_Occurred())) return otherwise();
    *out = value;
    return DONE;
}

/* --- attributes: those of extension types are read without being looked up --- */

static void find_attribute(PyTypeObject *type, PyObject *name, Attribute *made) {
    *made = (Attribute){.name = name};
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    if (found == NULL) {
        PyErr_Clear();
        return;
    }
    if (Py_IS_TYPE(found, &PyGetSetDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(found))) {
        PyGetSetDef *definition = ((PyGetSetDescrObject *)found)->d_getset;
        made->get = definition->get;
        made->closure = definition->closure;
    }
    Py_DECREF(found);
}

static inline PyObject *read_attribute(Attribute *attribute, PyObject *object) {
    return attribute->get != NULL ? attribute->get(object, attribute->closure)
                                  : PyObject_GetAttr(object, attribute->name);
}

/* --- types of arrays and streams, learnt when they are seen first --- */

static inline Known *find_known(Signature *signature, PyTypeObject *type) {
    int count = atomic_load_explicit(&signature->known_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (signature->known[i].type == type) return &signature->known[i];
    return NULL;
}

static void describe_cupy(PyObject *array, Known *made) {
    made->way = CUPY;
    find_attribute(made->type, shared.dtype, &made->dtype);
    find_attribute(made->type, shared.c_contiguous, &made->c_contiguous);
    find_attribute(made->type, shared.data, &made->data);
    made->ptr.name = shared.ptr;
    PyObject *data = read_attribute(&made->data, array);
    if (data == NULL) {
        PyErr_Clear();
        return;
    }
    find_attribute(Py_TYPE(data), shared.ptr, &made->ptr);
    made->data_type = Py_TYPE(data);
    Py_DECREF(data);
}

/* Asks `learner` how to read objects of a type: True (CuPy's array), a capsule (an ExchangeApi), a str (an attribute of
 * a stream), None (by the converter or the protocol) or False (this object does not tell). */
static int learn(Signature *signature, PyObject *learner, PyObject *object, Known **found) {
    Known made = {.type = Py_TYPE(object), .way = UNKNOWN};
    if (atomic_load_explicit(&signature->known_count, memory_order_relaxed) == MOST_TYPES) return OTHERWISE;
    PyObject *answer = PyObject_CallOneArg(learner, object);
    if (answer == NULL) return otherwise();
    if (answer == Py_True) {
        describe_cupy(object, &made);
    } else if (PyCapsule_IsValid(answer, EXCHANGE_API)) {
        const ExchangeApi *api = PyCapsule_GetPointer(answer, EXCHANGE_API);
        if (api->header.version.major == DL_MAJOR && api->describe != NULL) {
            made.way = DLPACK;
            made.describe = api->describe;
        }
    } else if (PyUnicode_CheckExact(answer)) {
        made.way = STREAM_ATTRIBUTE;
        find_attribute(made.type, answer, &made.handle);
    }
    int is_kept = answer != Py_False && PyList_Append(signature->kept, answer) == 0 &&
                  PyList_Append(signature->kept, (PyObject *)made.type) == 0 &&
                  (made.data_type == NULL || PyList_Append(signature->kept, (PyObject *)made.data_type) == 0);
    Py_DECREF(answer);
    if (!is_kept) return otherwise();
    Py_BEGIN_CRITICAL_SECTION(signature);
    *found = find_known(signature, made.type); /* another thread may have learnt it meanwhile */
    int count = atomic_load_explicit(&signature->known_count, memory_order_relaxed);
    if (*found == NULL && count < MOST_TYPES) {
        signature->known[count] = made;
        atomic_store_explicit(&signature->known_count, count + 1, memory_order_release);
        *found = &signature->known[count];
    }
    Py_END_CRITICAL_SECTION();
    return *found == NULL ? OTHERWISE : DONE;
}

/* --- arguments --- */

static inline int pack_cupy(Known *known, Parameter *parameter, PyObject *argument, uint64_t *out) {
    PyObject *value;
    if (parameter->dtype != NULL) {
        value = read_attribute(&known->dtype, argument);
        Py_XDECREF(value); /* compared, not used */
        if (value == NULL || value != parameter->dtype) return otherwise();
    }
    value = read_attribute(&known->c_contiguous, argument);
    Py_XDECREF(value);
    if (value != Py_True) return otherwise();
    value = read_attribute(&known->data, argument);
    if (value == NULL) return otherwise();
    PyObject *address = Py_IS_TYPE(value, known->data_type) ? read_attribute(&known->ptr, value)
                                                            : PyObject_GetAttr(value, known->ptr.name);
    Py_DECREF(value);
    int result = as_number(address, out);
    return result == DONE && *out == 0 ? OTHERWISE : result; /* 0 is only right if the array is empty */
}

static int is_contiguous(int64_t dim, const int64_t *sizes, const int64_t *strides, uint64_t *count) { /* of elements */
    int result = 1;
    *count = 1;
    for (int64_t i = dim - 1; i >= 0; i--) {
        if (sizes[i] != 1 && (uint64_t)strides[i] != *count) result = 0;
        *count *= (uint64_t)sizes[i];
        if (sizes[i] == 0) return 1;
    }
    return result;
}

/* A tensor may stand for the conjugate or the negative of what its memory holds. */
static int is_lazy(PyObject *tensor, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(tensor, method);
    Py_XDECREF(answer);
    return answer != Py_False;
}

static inline int pack_dlpack(Known *known, const Parameter *parameter, PyObject *object, uint64_t *out) {
    DLTensor tensor;
    if (known->describe(object, &tensor) != 0) return otherwise();
    int code = tensor.dtype.code, bits = tensor.dtype.bits;
    if (tensor.device_type != DL_CUDA || tensor.dtype.lanes != 1 || code > DL_BOOL ||
        (parameter->bits != 0 && (code != parameter->code || bits != parameter->bits)) ||
        (tensor.ndim != 0 && tensor.strides == NULL))
        return OTHERWISE;
    uint64_t count = 2;
    if (tensor.ndim == 1 && tensor.shape[0] > 1) { /* the usual one, without a loop */
        if (tensor.strides[0] != 1) return OTHERWISE;
    } else if (!is_contiguous(tensor.ndim, tensor.shape, tensor.strides, &count)) {
        return OTHERWISE;
    }
    /* The negative is the imaginary part of a conjugate, and contiguous only if it has one element or none. */
    if (code == DL_COMPLEX && is_lazy(object, shared.is_conj)) return otherwise();
    if (count < 2 && is_lazy(object, shared.is_neg)) return otherwise();
    if (count == 0) {
        *out = 0; /* as __cuda_array_interface__ */
        return DONE;
    }
    *out = (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset;
    return tensor.data == NULL ? OTHERWISE : DONE; /* its memory is gone */
}

/* An argument of any kind, by the Python converter: it returns the bytes that the kernel reads. */
static int pack_converted(Parameter *parameter, PyObject *argument, char *out) {
    PyObject *value = PyObject_CallOneArg(parameter->convert, argument);
    if (value == NULL) return otherwise();
    int result = OTHERWISE;
    if (PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) == parameter->size) {
        memcpy(out, PyBytes_AS_STRING(value), (size_t)parameter->size);
        result = DONE;
    }
    Py_DECREF(value);
    return result;
}

static int pack_pointer(Signature *signature, Parameter *parameter, PyObject *argument, char *out) {
    if (argument == Py_None) {
        memset(out, 0, 8);
        return DONE;
    }
    if (!PyLong_CheckExact(argument)) {
        Known *known = find_known(signature, Py_TYPE(argument));
        uint64_t address = 0;
        int result = known != NULL ? DONE : learn(signature, signature->learn_array, argument, &known);
        if (result == DONE)
            result = known->way == DLPACK ? pack_dlpack(known, parameter, argument, &address)
                     : known->way == CUPY ? pack_cupy(known, parameter, argument, &address)
                                          : OTHERWISE;
        if (result == DONE) memcpy(out, &address, 8);
        if (result != OTHERWISE) return result;
    }
    return pack_converted(parameter, argument, out); /* of another library, or one that does not fit */
}

static inline int pack_integer(Parameter *parameter, PyObject *argument, char *out) {
    PyObject *index = NULL;
    uint64_t bits;
    if (!PyLong_CheckExact(argument)) {
        if (!PyIndex_Check(argument)) return OTHERWISE;
        argument = index = PyNumber_Index(argument);
        if (index == NULL) return otherwise();
    }
    int fits;
    if (parameter->is_signed || parameter->size < 8) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(argument, &overflow);
        int width = 8 * parameter->size;
        if (parameter->is_signed)
            fits = !overflow && (width == 64 || (value >= -(1LL << (width - 1)) && value < 1LL << (width - 1)));
        else
            fits = !overflow && value >= 0 && value < 1LL << width;
        bits = (uint64_t)value;
    } else {
        bits = PyLong_AsUnsignedLong(argument);
        fits = !(bits == (uint64_t)-1 && PyErr_Occurred());
    }
    Py_XDECREF(index);
    if (!fits) return otherwise();
    switch (parameter->size) { /* little-endian, as all that CUDA runs on */
    case 4: memcpy(out, &bits, 4); break; /* an instruction each */
    case 8: memcpy(out, &bits, 8); break;
    default: memcpy(out, &bits, (size_t)parameter->size);
    }
    return DONE;
}

static int pack_real(Parameter *parameter, PyObject *argument, char *out) {
    double value;
    if (PyFloat_CheckExact(argument)) {
        value = PyFloat_AS_DOUBLE(argument);
    } else if (PyLong_CheckExact(argument)) {
        value = PyLong_AsDouble(argument);
        if (value == -1.0 && PyErr_Occurred()) return otherwise();
    } else if ((PyObject *)Py_TYPE(argument) == parameter->scalar) {
        PyObject *number = PyNumber_Float(argument);
        if (number == NULL) return otherwise();
        value = PyFloat_AS_DOUBLE(number);
        Py_DECREF(number);
    } else {
        return pack_converted(parameter, argument, out);
    }
    if (parameter->kind == DOUBLE) {
        memcpy(out, &value, 8);
        return DONE;
    }
    if (isfinite(value) && fabs(value) > (double)FLT_MAX) return OTHERWISE;
    float single = (float)value;
    memcpy(out, &single, 4);
    return DONE;
}

static int pack(Signature *signature, Parameter *parameter, PyObject *argument, char *out) {
    switch (parameter->kind) {
    case POINTER: return pack_pointer(signature, parameter, argument, out);
    case INTEGER: return pack_integer(parameter, argument, out);
    case FLOAT: case DOUBLE: return pack_real(parameter, argument, out);
    case BOOLEAN:
        if (!PyBool_Check(argument)) return pack_converted(parameter, argument, out);
        *out = argument == Py_True;
        return DONE;
    default: return pack_converted(parameter, argument, out);
    }
}

/* --- streams and configurations --- */

/* By __cuda_stream__, which returns a version and the handle. */
static int ask_stream(PyObject *stream, uint64_t *out) {
    PyObject *pair = PyObject_CallMethodNoArgs(stream, shared.stream_protocol);
    if (pair == NULL) return otherwise();
    int result = OTHERWISE;
    if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        result = as_number(Py_NewRef(PyTuple_GET_ITEM(pair, 1)), out);
    Py_DECREF(pair);
    return result;
}

static inline int read_stream(Signature *signature, PyObject *stream, void **out) {
    uint64_t handle = 0;
    int result = DONE;
    if (stream == Py_None) {
    } else if ((PyObject *)Py_TYPE(stream) == signature->stream_type) {
        result = ask_stream(stream, &handle);
        if (result == DONE && handle == 0) result = OTHERWISE; /* a closed one */
    } else if (PyLong_CheckExact(stream)) {
        result = as_number(Py_NewRef(stream), &handle);
    } else {
        Known *known = find_known(signature, Py_TYPE(stream));
        if (known == NULL) {
            result = learn(signature, signature->learn_stream, stream, &known);
            if (result != DONE) return result;
        }
        if (known->way == STREAM_ATTRIBUTE) {
            result = as_number(read_attribute(&known->handle, stream), &handle);
        } else {
            result = ask_stream(stream, &handle);
        }
    }
    *out = (void *)(uintptr_t)(handle != 0 ? handle : signature->default_stream);
    return result;
}

static inline int read_size(PyObject *number, int lowest, unsigned int *out) {
    if (!PyLong_CheckExact(number)) return OTHERWISE;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || value < lowest || value > INT32_MAX) return otherwise();
    *out = (unsigned int)value;
    return DONE;
}

static inline int read_extents(PyObject *extents, unsigned int *out) {
    out[0] = out[1] = out[2] = 1;
    if (PyLong_CheckExact(extents)) return read_size(extents, 1, out);
    if (!PyTuple_CheckExact(extents)) return OTHERWISE;
    Py_ssize_t count = PyTuple_GET_SIZE(extents);
    if (count < 1 || count > 3) return OTHERWISE;
    for (Py_ssize_t i = 0; i < count; i++) {
        int result = read_size(PyTuple_GET_ITEM(extents, i), 1, &out[i]);
        if (result != DONE) return result;
    }
    return DONE;
}

/* Keyword arguments: shared_memory, and the others as long as they ask for nothing. */
static int read_keywords(PyObject *const *values, PyObject *keywords, unsigned int *shared_memory) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); i++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, i), *value = values[i];
        if (name == shared.shared_memory) { /* names in a program are interned */
            int result = read_size(value, 0, shared_memory);
            if (result != DONE) return result;
        } else if (name == shared.cluster ? value != Py_None
                   : name == shared.cooperative || name == shared.programmatic ? value != Py_False
                                                                               : 1) {
            return OTHERWISE;
        }
    }
    return DONE;
}

/* --- the launch --- */

static inline int issue(LaunchFunction launch, Handles *handles, LaunchConfig *config, void **arguments, void **buffer) {
    uintptr_t function = (uintptr_t)atomic_load_explicit(&handles->function, memory_order_relaxed);
    void *kernel = (void *)(uintptr_t)handles->kernel;
    if (function == 0) return launch(config, kernel, arguments, buffer);
    int status = launch(config, (void *)function, arguments, buffer);
    if (status != INVALID_HANDLE) return status;
    status = launch(config, kernel, arguments, buffer);
    if (status == 0) atomic_store_explicit(&handles->function, 0, memory_order_relaxed); /* another context's stream */
    return status;
}

static int is_captured(Signature *signature, uintptr_t stream) {
    int found = 0;
    return signature->is_capturing == NULL || signature->is_capturing(stream, &found) != 0 || found != 0;
}

static inline int launch(Signature *signature, Handles *handles, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    enum { STREAM, GRID, BLOCK, FIRST };
    if (count != FIRST + signature->count ||
        signature->generation != atomic_load_explicit(&generation, memory_order_relaxed))
        return OTHERWISE;
    LaunchConfig config = {.attribute_count = 0};
    int result;
    if ((result = read_extents(args[GRID], config.grid)) != DONE) return result;
    if ((result = read_extents(args[BLOCK], config.block)) != DONE) return result;
    if (keywords != NULL && (result = read_keywords(args + count, keywords, &config.shared_memory)) != DONE)
        return result;
    if ((long)config.shared_memory > handles->granted) return OTHERWISE;

    char values[MOST_BYTES];
    void *arguments[MOST_PARAMETERS];
    for (Py_ssize_t i = 0; i < signature->count; i++) {
        Parameter *parameter = &signature->parameters[i];
        char *out = values + parameter->offset;
        if (!signature->is_buffer) arguments[i] = out;
        if ((result = pack(signature, parameter, args[FIRST + i], out)) != DONE) return result;
    }
    size_t size = signature->size;
    void *buffer[] = {BUFFER_POINTER, values, BUFFER_SIZE, &size, NULL};
    if ((result = read_stream(signature, args[STREAM], &config.stream)) != DONE) return result;
    if (handles->fast && is_captured(signature, (uintptr_t)config.stream)) return OTHERWISE;

    int status;
    /* A launch waits where the queue is full, perhaps for a host function that needs the interpreter. */
    Py_BEGIN_ALLOW_THREADS
    status = signature->is_buffer ? issue(signature->launch, handles, &config, NULL, buffer)
                                  : issue(signature->launch, handles, &config, arguments, NULL);
    Py_END_ALLOW_THREADS
    return status == 0 ? DONE : OTHERWISE;
}

static int signature_traverse(PyObject *self, visitproc visit, void *arg) {
    Signature *signature = (Signature *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(signature->kept);
    return 0;
}

static int signature_clear(PyObject *self) {
    Signature *signature = (Signature *)self;
    /* First: should it be used while a cycle is taken apart, or later, it launches nothing. */
    signature->generation = atomic_load(&generation) - 1;
    Py_CLEAR(signature->kept);
    return 0;
}

static void signature_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    signature_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot signature_slots[] = {
    {Py_tp_doc, "How the arguments of kernels with one signature are checked and packed."},
    {Py_tp_dealloc, signature_dealloc},
    {Py_tp_traverse, signature_traverse},
    {Py_tp_clear, signature_clear},
    {0, NULL},
};

static PyType_Spec signature_spec = {
    .name = "jitlto.launch._launch.Signature",
    .basicsize = sizeof(Signature),
    .itemsize = sizeof(Parameter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = signature_slots,
};

#include "_called.c"
#include "_xla.c"

/* --- the module --- */

/* (kind, size, alignment, is_signed, code, bits, dtype, scalar, convert) */
static int read_parameter(PyObject *row, Parameter *parameter, size_t *end, int *is_buffer) {
    int kind, alignment;
    PyObject *dtype, *scalar, *convert;
    if (!PyArg_ParseTuple(row, "iiipiiOOO", &kind, &parameter->size, &alignment, &parameter->is_signed,
                          &parameter->code, &parameter->bits, &dtype, &scalar, &convert))
        return -1;
    /* A kind has its size from the table of scalars; sizes of other types, and alignments, are a database's. */
    if (parameter->size < 1 || parameter->size > MOST_BYTES ||
        alignment < 1 || alignment > MOST_BYTES || (alignment & (alignment - 1)) != 0) {
        PyErr_SetString(PyExc_ValueError, "unsupported parameter");
        return -1;
    }
    size_t offset = (*end + (size_t)alignment - 1) & ~((size_t)alignment - 1);
    *end = offset + (size_t)parameter->size;
    if (*end > MOST_BYTES) {
        PyErr_SetString(PyExc_ValueError, "too many bytes");
        return -1;
    }
    parameter->kind = (Kind)kind;
    parameter->offset = (int)offset;
    if (alignment > MOST_ALIGNMENT) *is_buffer = 0;
    parameter->dtype = dtype == Py_None ? NULL : dtype;
    parameter->scalar = scalar;
    parameter->convert = convert;
    return 0;
}

static PyObject *make_signature(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *rows, *learn_array, *learn_stream, *stream_type;
    unsigned long long function, is_capturing, default_stream;
    if (!PyArg_ParseTuple(args, "O!KKKOOO:make_signature", &PyTuple_Type, &rows, &function, &is_capturing,
                          &default_stream, &stream_type, &learn_array, &learn_stream))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    if (count > MOST_PARAMETERS || function == 0) {
        PyErr_SetString(PyExc_ValueError, "too many parameters, or no function");
        return NULL;
    }
    Signature *signature = PyObject_GC_NewVar(Signature, shared.signature_type, count);
    if (signature == NULL) return NULL;
    memset((char *)signature + offsetof(Signature, launch), 0,
           sizeof(Signature) - offsetof(Signature, launch) + (size_t)count * sizeof(Parameter));
    signature->launch = (LaunchFunction)(uintptr_t)function;
    signature->is_capturing = (CaptureFunction)(uintptr_t)is_capturing;
    signature->default_stream = (uintptr_t)default_stream;
    signature->generation = atomic_load(&generation);
    signature->learn_array = learn_array;
    signature->learn_stream = learn_stream;
    signature->stream_type = stream_type;
    signature->kept = Py_BuildValue("[OOOO]", rows, learn_array, learn_stream, stream_type);
    signature->is_buffer = count > 0;
    int is_made = signature->kept != NULL;
    for (; is_made && signature->count < count; signature->count++)
        is_made = read_parameter(PyTuple_GET_ITEM(rows, signature->count), &signature->parameters[signature->count],
                                 &signature->size, &signature->is_buffer) == 0;
    if (!is_made) {
        Py_DECREF(signature);
        return NULL;
    }
    PyObject_GC_Track(signature);
    return (PyObject *)signature;
}

static PyObject *forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    atomic_fetch_add(&generation, 1);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"make_called_class", make_called_class, METH_O,
     "make_called_class(base): a class below another one, whose objects are called faster."},
    {"make_lookup", make_lookup, METH_VARARGS,
     "make_lookup(class, text): a method that looks in the list in the attribute _quick first, then calls _ask_launcher.\n"
     "The text is that of help(), for the methods of all classes."},
    {"remember", remember, METH_VARARGS,
     "remember(answers, values, names, answer): keep an answer in a list, by its arguments and the names of the last of them.\n"
     "Its length is a power of two, and its free places hold None."},
    {"make_signature", make_signature, METH_VARARGS,
     "make_signature(rows, function, default_stream, stream_type, learn_array, learn_stream)"},
    {"make_xla_handler", make_xla_handler, METH_VARARGS,
     "make_xla_handler(functions, major, minor): the handler for XLA, of a version of its interface. The functions are the\n"
     "addresses of cuLaunchKernelEx, cuStreamGetCtx, cuCtxPushCurrent and cuCtxPopCurrent; the last three 0 without streams."},
    {"add_xla_kernel", add_xla_kernel, METH_VARARGS,
     "add_xla_kernel(digest, handle): let calls by XLA find a kernel, which the caller keeps loaded."},
    {"forget", forget, METH_NOARGS, "Let what was made so far launch and answer nothing more."},
    {NULL, NULL, 0, NULL},
};

static int make_shared(void) {
    struct { PyObject **place; const char *text; } texts[] = {
        {&shared.c_contiguous, "_c_contiguous"}, {&shared.data, "data"}, {&shared.dtype, "dtype"},
        {&shared.is_conj, "is_conj"}, {&shared.is_neg, "is_neg"}, {&shared.ptr, "ptr"},
        {&shared.quick, "_quick"}, {&shared.ask_launcher, "_ask_launcher"}, {&shared.call, "__call__"},
        {&shared.stream_protocol, "__cuda_stream__"},
        {&shared.shared_memory, "shared_memory"}, {&shared.cluster, "cluster"}, {&shared.cooperative, "cooperative"},
        {&shared.programmatic, "programmatic"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((*texts[i].place = PyUnicode_InternFromString(texts[i].text)) == NULL) return -1;
    return (shared.signature_type = (PyTypeObject *)PyType_FromSpec(&signature_spec)) == NULL ? -1 : 0;
}

static int module_exec(PyObject *module) {
    if (shared.signature_type == NULL && make_shared() < 0) return -1;
    struct { const char *name; int value; } constants[] = {
        {"POINTER", POINTER}, {"INTEGER", INTEGER}, {"FLOAT", FLOAT}, {"DOUBLE", DOUBLE}, {"BOOLEAN", BOOLEAN},
        {"CONVERTED", CONVERTED}, {"MOST_BYTES", MOST_BYTES}, {"MOST_PARAMETERS", MOST_PARAMETERS},
        {"INTERFACE", INTERFACE},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) return -1;
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* as of NumPy */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_launch",
    .m_doc = "The compiled core of launches.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__launch(void) { return PyModuleDef_Init(&definition); }
