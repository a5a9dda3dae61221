/* The compiled core of launches: it checks and packs the arguments of one signature and calls cuLaunchKernelEx.
 *
 * A Call is the method __call__ of the launchers of one signature. It is driven by a table, one row a parameter. It handles
 * the usual arguments itself; whatever it does not know, and every error, it leaves to `fallback`, the Python way, which
 * repeats the whole launch. So it has no error texts of its own, and both ways give the same results.
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
enum { INTERFACE = 8 };

/* --- the layouts of others --- */

typedef struct { /* CUlaunchConfig, cuda.h */
    unsigned int grid[3], block[3], shared_memory;
    void *stream;
    void *attributes;
    unsigned int attribute_count;
} LaunchConfig;

typedef int (*LaunchFunction)(const LaunchConfig *, void *kernel, void **parameters, void **extra);

enum { INVALID_HANDLE = 400 }; /* CUresult, cuda.h */

/* Where kernels find their parameters is aligned to 16 bytes for every architecture, so that those of up to that alignment
 * have the offsets that they would have in a structure. Others, such as tensor maps, may be preceded by more bytes. */
enum { MOST_ALIGNMENT = 16 };

/* CU_LAUNCH_PARAM_BUFFER_POINTER and CU_LAUNCH_PARAM_BUFFER_SIZE, cuda.h */
#define BUFFER_POINTER ((void *)1)
#define BUFFER_SIZE ((void *)2)

typedef struct { /* DLTensor, dlpack.h */
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef int (*TensorFromObject)(void *object, Tensor *out);

typedef struct ExchangeAPI { /* DLPackExchangeAPI, dlpack.h 1.3 */
    uint32_t major, minor;
    struct ExchangeAPI *previous;
    void *allocate, *managed_from_object, *managed_to_object;
    TensorFromObject tensor_from_object;
    void *current_work_stream;
} ExchangeAPI;

typedef int32_t (*TensorGetter)(void *tensor, void *out); /* PyTorch's aoti_torch_get_device_type() and the like */

enum { MOST_DTYPES = 64 };

typedef struct { /* made by torch_interface.py */
    TensorGetter device_type, layout, dtype, dim, sizes, strides, data;
    int64_t offset; /* of the C++ tensor in a Python object */
    int32_t cuda, strided; /* PyTorch's numbers of that device type and layout */
    struct { uint8_t code, bits; } dtypes[MOST_DTYPES]; /* PyTorch's number of a dtype -> DLPack's; no bits: none */
} TorchInterface;

enum { DL_CUDA = 2 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_COMPLEX, DL_BOOL };

/* --- the table --- */

typedef enum { POINTER, INTEGER, FLOAT, DOUBLE, BOOLEAN, CONVERTED } Kind;

typedef struct {
    Kind kind;
    int size, offset;   /* bytes; offset in the buffer of arguments */
    int is_signed;      /* of an integer */
    int is_constant;    /* of a pointer: the kernel only reads through it */
    int code, bits;     /* of what a pointer points to, as DLPack has it; no bits: of any type */
    PyObject *dtype;    /* of what a pointer points to, as NumPy has it; NULL: of any type */
    PyObject *scalar;   /* NumPy's type of a number */
    PyObject *convert;  /* the Python converter */
} Parameter;

typedef enum { UNKNOWN, CUPY, TORCH, EXCHANGE, STREAM_ATTRIBUTE } Way;

typedef struct { /* an attribute of objects of one type */
    PyObject *name;
    getter get; /* NULL: look it up */
    void *closure;
    Py_ssize_t offset; /* of the field that the getter returns; 0: not known */
} Attribute;

typedef struct { /* an attribute for which a class has a slot, read without being looked up */
    PyObject *name;
    PyTypeObject *type; /* of the first such object; held, so that no other type is at its address */
    Py_ssize_t offset;
} Slot;

typedef struct { /* how to get the address of an array, or the handle of a stream, of one exact type */
    PyTypeObject *type, *data_type;
    Way way;
    TensorFromObject tensor_from_object;
    int is_torch; /* such tensors are writable, and may be conjugated when they are read */
    Attribute handle;                             /* of a stream */
    Attribute dtype, c_contiguous, data, ptr;     /* of CuPy's array; the last is of its data */
    int has_fields;                               /* all but c_contiguous */
    PyObject *torch; /* bytes, a TorchInterface */
} Known;

enum { MOST_TYPES = 8, MOST_PARAMETERS = 128, MOST_BYTES = 4096 };

typedef struct {
    PyObject *c_contiguous, *data, *dtype, *is_conj, *is_neg, *ptr, *requires_grad, *stream_protocol, *state;
    PyObject *shared_memory, *cluster, *cooperative, *programmatic;
    PyTypeObject *call_type, *state_type, *table_type, *lookup_type, *bound_type;
} Names;

typedef struct { /* what a launcher has beside its signature */
    PyObject_HEAD
    void *kernel;             /* CUkernel, for any context */
    _Atomic(void *) function; /* CUfunction, of one context, which the driver launches faster; NULL: there are several */
    atomic_long granted; /* bytes of dynamic shared memory with which the Python way has launched it */
} State;

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *module; /* keeps the names */
    Names *names;
    LaunchFunction launch;
    uintptr_t default_stream;
    unsigned generation;
    PyObject *fallback, *learn_array, *learn_stream, *prepare, *stream_type;
    Slot state; /* of a launcher */
    PyObject *last_stream; /* of CuPy or PyTorch, whose streams keep their handles for life; and its handle */
    uint64_t last_handle;
    Known known[MOST_TYPES];
    atomic_int known_count; /* rows are only added, and counted when they are complete */
    size_t size;   /* of the arguments */
    int is_buffer; /* they lie in it as the kernel finds them, and are passed as one */
    Py_ssize_t count;
    Parameter parameters[];
} Call;

/* Raised in a forked process: Calls that were made before may not launch there. */
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

#if ULONG_MAX == UINT64_MAX /* CPython converts that in a third of the time of unsigned long long */
#define AS_UINT64 PyLong_AsUnsignedLong
#else
#define AS_UINT64 PyLong_AsUnsignedLongLong
#endif

/* A number of few digits, without a call; most numbers are. */
static inline int read_compact(PyObject *number, long long *out) {
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)number)) return 0;
    *out = PyUnstable_Long_CompactValue((PyLongObject *)number);
#else
    Py_ssize_t size = Py_SIZE(number); /* of digits, with the sign */
    if (size < -1 || size > 1) return 0;
    *out = size == 0 ? 0 : size * (long long)((PyLongObject *)number)->ob_digit[0];
#endif
    return 1;
}

static inline long long as_long_long(PyObject *number, int *overflow) {
    long long value;
    if (!read_compact(number, &value)) return PyLong_AsLongLongAndOverflow(number, overflow);
    *overflow = 0;
    return value;
}

static inline int as_number(PyObject *owned, uint64_t *out) {
    if (owned == NULL) return otherwise();
    int is_number = PyLong_Check(owned);
    uint64_t value = is_number ? AS_UINT64(owned) : 0;
    Py_DECREF(owned);
    if (!is_number || (value == (uint64_t)-1 && PyErr_Occurred())) return otherwise();
    *out = value;
    return DONE;
}

/* While a garbage cycle is taken apart, an object of another extension in it may still call what was cleared. */
static PyObject *no_longer_in_use(void) {
    PyErr_SetString(PyExc_TypeError, "the object is no longer in use");
    return NULL;
}

/* NULL, with an error, once the types are cleared. */
static Names *names_of(PyObject *module) {
    Names *names = PyModule_GetState(module);
    return names->call_type != NULL ? names : (Names *)no_longer_in_use(); /* the first that is cleared */
}

static PyObject *none_as_null(PyObject *object) { return object == Py_None ? NULL : Py_NewRef(object); }

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

#ifndef Py_GIL_DISABLED /* where another thread may replace the value while it is read */
static void learn_slot(Slot *slot, PyTypeObject *type) {
    PyObject *found = PyObject_GetAttr((PyObject *)type, slot->name);
    if (found == NULL) {
        PyErr_Clear();
        return;
    }
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(found)) &&
        ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX && type->tp_getattro == PyObject_GenericGetAttr) {
        slot->offset = ((PyMemberDescrObject *)found)->d_member->offset;
        slot->type = (PyTypeObject *)Py_NewRef(type);
    }
    Py_DECREF(found);
}
#endif

static inline PyObject *read_slot(Slot *slot, PyObject *object) {
#ifndef Py_GIL_DISABLED
    if (slot->type == NULL) learn_slot(slot, Py_TYPE(object));
    if (Py_TYPE(object) == slot->type) {
        PyObject *value = *(PyObject **)((char *)object + slot->offset);
        if (value != NULL) return Py_NewRef(value);
    }
#endif
    return PyObject_GetAttr(object, slot->name);
}

#ifndef Py_GIL_DISABLED /* where another thread may replace the value while it is read */
/* Finds the field that a getter returned, of an object or of an address; not if two fields have the value. */
static void find_field(Attribute *attribute, PyObject *object, uintptr_t value) {
    if (attribute->get == NULL || value == 0) return;
    Py_ssize_t last = Py_TYPE(object)->tp_basicsize - (Py_ssize_t)sizeof value, found = 0;
    for (Py_ssize_t offset = sizeof(PyObject); offset <= last; offset += (Py_ssize_t)sizeof value) {
        if (memcmp((char *)object + offset, &value, sizeof value) != 0) continue;
        if (found != 0) return;
        found = offset;
    }
    attribute->offset = found;
}
#endif

static inline void *read_field(const Attribute *attribute, PyObject *object) {
    return *(void **)((char *)object + attribute->offset);
}

/* --- types of arrays and streams, learnt when they are seen first --- */

static inline Known *find_known(Call *call, PyTypeObject *type) {
    int count = atomic_load_explicit(&call->known_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (call->known[i].type == type) return &call->known[i];
    return NULL;
}

/* CuPy's attributes are fields of C structures. Where these are found, an array is read with one call instead of four. */
static void find_fields(Known *made, PyObject *array, PyObject *data) {
#ifdef Py_GIL_DISABLED
    (void)made, (void)array, (void)data;
#else
    PyObject *dtype = read_attribute(&made->dtype, array);
    uint64_t address = 0;
    if (as_number(read_attribute(&made->ptr, data), &address) == DONE) find_field(&made->ptr, data, (uintptr_t)address);
    find_field(&made->dtype, array, (uintptr_t)dtype);
    find_field(&made->data, array, (uintptr_t)data);
    made->has_fields = made->dtype.offset != 0 && made->data.offset != 0 && made->ptr.offset != 0;
    Py_XDECREF(dtype);
    PyErr_Clear();
#endif
}

static void describe_cupy(Names *names, PyObject *array, Known *made) {
    made->way = CUPY;
    find_attribute(made->type, names->dtype, &made->dtype);
    find_attribute(made->type, names->c_contiguous, &made->c_contiguous);
    find_attribute(made->type, names->data, &made->data);
    made->ptr.name = names->ptr;
    PyObject *data = read_attribute(&made->data, array);
    if (data == NULL) {
        PyErr_Clear();
        return;
    }
    find_attribute(Py_TYPE(data), names->ptr, &made->ptr);
    made->data_type = (PyTypeObject *)Py_NewRef(Py_TYPE(data));
    find_fields(made, array, data);
    Py_DECREF(data);
}

static int describe_exchange(Names *names, PyObject *capsule, Known *made) {
    ExchangeAPI *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (api == NULL) return otherwise();
    while (api != NULL && api->major != 1) api = api->previous;
    if (api == NULL || api->tensor_from_object == NULL) return OTHERWISE;
    made->way = EXCHANGE;
    made->tensor_from_object = api->tensor_from_object;
    made->is_torch = PyObject_HasAttr((PyObject *)made->type, names->requires_grad);
    return DONE;
}

/* Asks `learner` how to read objects of a type: True (CuPy's array), bytes (a TorchInterface), a capsule (DLPack), a str
 * (an attribute of a stream), None (the core does not know the type) or False (this object does not tell). */
static int learn(Call *call, PyObject *learner, PyObject *object, Known **found) {
    Known made = {.type = Py_TYPE(object), .way = UNKNOWN};
    if (atomic_load_explicit(&call->known_count, memory_order_relaxed) == MOST_TYPES) return OTHERWISE;
    PyObject *answer = PyObject_CallOneArg(learner, object);
    if (answer == NULL) return otherwise();
    if (answer == Py_False) {
        Py_DECREF(answer);
        return OTHERWISE;
    }
    if (answer == Py_True) {
        describe_cupy(call->names, object, &made);
    } else if (PyBytes_CheckExact(answer) && PyBytes_GET_SIZE(answer) == sizeof(TorchInterface)) {
        made.way = TORCH;
        made.is_torch = 1;
        made.torch = Py_NewRef(answer);
    } else if (PyUnicode_CheckExact(answer)) {
        made.way = STREAM_ATTRIBUTE;
        find_attribute(made.type, Py_NewRef(answer), &made.handle);
    } else if (PyCapsule_CheckExact(answer) && describe_exchange(call->names, answer, &made) == FAILED) {
        Py_DECREF(answer);
        return FAILED;
    }
    Py_DECREF(answer);
    int is_kept = 0;
    Py_BEGIN_CRITICAL_SECTION(call);
    *found = find_known(call, made.type); /* another thread may have learnt it meanwhile */
    int count = atomic_load_explicit(&call->known_count, memory_order_relaxed);
    if (*found == NULL && count < MOST_TYPES) {
        Py_INCREF(made.type);
        call->known[count] = made;
        atomic_store_explicit(&call->known_count, count + 1, memory_order_release);
        *found = &call->known[count];
        is_kept = 1;
    }
    Py_END_CRITICAL_SECTION();
    if (!is_kept) {
        Py_XDECREF(made.handle.name);
        Py_XDECREF(made.data_type);
        Py_XDECREF(made.torch);
    }
    return *found == NULL ? OTHERWISE : DONE;
}

/* --- arguments --- */

static inline int pack_cupy(Known *known, Parameter *parameter, PyObject *argument, uint64_t *out) {
    PyObject *value;
    if (parameter->dtype != NULL && known->has_fields) {
        if (read_field(&known->dtype, argument) != parameter->dtype) return OTHERWISE;
    } else if (parameter->dtype != NULL) {
        value = read_attribute(&known->dtype, argument);
        Py_XDECREF(value); /* compared, not used */
        if (value == NULL || value != parameter->dtype) return otherwise();
    }
    value = read_attribute(&known->c_contiguous, argument);
    Py_XDECREF(value);
    if (value != Py_True) return otherwise();
    if (known->has_fields) {
        value = read_field(&known->data, argument);
        if (value == NULL || !Py_IS_TYPE(value, known->data_type)) return OTHERWISE;
        *out = (uint64_t)(uintptr_t)read_field(&known->ptr, value);
        return DONE;
    }
    value = read_attribute(&known->data, argument);
    if (value == NULL) return otherwise();
    PyObject *address = Py_IS_TYPE(value, known->data_type) ? read_attribute(&known->ptr, value)
                                                            : PyObject_GetAttr(value, known->ptr.name);
    Py_DECREF(value);
    return as_number(address, out);
}

static int has_any_type(const Tensor *tensor) { /* that the Python way knows too */
    switch (tensor->code) {
    case DL_INT: case DL_UINT: case DL_BOOL: return tensor->bits >= 8;
    case DL_FLOAT: return tensor->bits >= 16;
    case DL_BFLOAT: case DL_COMPLEX: return 1;
    default: return 0;
    }
}

static inline int has_type(const Parameter *parameter, const Tensor *tensor) {
    if (tensor->lanes != 1) return 0;
    if (parameter->bits == 0) return has_any_type(tensor);
    return tensor->code == parameter->code && tensor->bits == parameter->bits;
}

static int is_contiguous(const Tensor *tensor, uint64_t *size) { /* which is the number of elements */
    int result = 1;
    *size = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        uint64_t extent = (uint64_t)tensor->shape[i];
        if (tensor->strides != NULL && extent != 1 && (uint64_t)tensor->strides[i] != *size) result = 0;
        *size *= extent;
        if (extent == 0) return 1;
    }
    return result;
}

/* PyTorch's own functions take a fifth of the time of DLPack's. */
static inline int read_torch(const TorchInterface *torch, const Parameter *parameter, PyObject *object, Tensor *out) {
    void *tensor = (char *)object + torch->offset;
    int32_t device_type, layout, dtype;
    int64_t dim;
    if (torch->device_type(tensor, &device_type) != 0 || device_type != torch->cuda ||
        torch->layout(tensor, &layout) != 0 || layout != torch->strided ||
        torch->dtype(tensor, &dtype) != 0 || dtype < 0 || dtype >= MOST_DTYPES)
        return OTHERWISE;
    *out = (Tensor){.device_type = DL_CUDA, .code = torch->dtypes[dtype].code, .bits = torch->dtypes[dtype].bits, .lanes = 1};
    if (!has_type(parameter, out)) return OTHERWISE; /* before it is asked what such a tensor may not have */
    if (torch->dim(tensor, &dim) != 0 || torch->sizes(tensor, &out->shape) != 0 ||
        torch->strides(tensor, &out->strides) != 0 || torch->data(tensor, &out->data) != 0)
        return OTHERWISE;
    out->ndim = (int32_t)dim;
    return DONE;
}

/* A tensor may stand for the conjugate or the negative of what its memory holds. */
static int is_lazy(PyObject *tensor, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(tensor, method);
    Py_XDECREF(answer);
    return answer != Py_False;
}

static inline int pack_tensor(Call *call, const Known *known, const Parameter *parameter, PyObject *argument, uint64_t *out) {
    if (!known->is_torch && !parameter->is_constant) return OTHERWISE; /* a DLTensor does not tell whether it is writable */
    Tensor tensor;
    if (known->way == TORCH) {
        const TorchInterface *torch = (const TorchInterface *)PyBytes_AS_STRING(known->torch);
        if (read_torch(torch, parameter, argument, &tensor) != DONE) return OTHERWISE;
    } else {
        if (known->tensor_from_object(argument, &tensor) != 0) return otherwise();
        if (tensor.device_type != DL_CUDA || !has_type(parameter, &tensor)) return OTHERWISE;
    }
    uint64_t size = 2;
    if (tensor.ndim == 1 && tensor.shape[0] > 1) { /* the usual one, without a loop */
        if (tensor.strides != NULL && tensor.strides[0] != 1) return OTHERWISE;
    } else if (!is_contiguous(&tensor, &size)) {
        return OTHERWISE;
    }
    if (known->is_torch) { /* the negative is the imaginary part of a conjugate, and contiguous only if it has one or none */
        if (tensor.code == DL_COMPLEX && is_lazy(argument, call->names->is_conj)) return otherwise();
        if (size < 2 && is_lazy(argument, call->names->is_neg)) return otherwise();
    }
    *out = size == 0 ? 0 : (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset; /* 0 as __cuda_array_interface__ */
    return size != 0 && *out == 0 ? OTHERWISE : DONE; /* its memory is gone */
}

/* An argument of any kind, by the Python converter: it returns what cuda.core.launch passes on. */
static int pack_converted(Parameter *parameter, PyObject *argument, char *out) {
    PyObject *value = PyObject_CallOneArg(parameter->convert, argument);
    if (value == NULL) return otherwise();
    int result = OTHERWISE;
    if (PyLong_CheckExact(value)) {
        uint64_t bits = PyLong_AsUnsignedLongLongMask(value);
        if (parameter->size <= 8) {
            memcpy(out, &bits, (size_t)parameter->size);
            result = DONE;
        }
    } else if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AS_DOUBLE(value);
        if (parameter->size == 8) {
            memcpy(out, &number, 8);
            result = DONE;
        }
    } else {
        if (!PyObject_CheckBuffer(value)) { /* a Packed, which has one only since Python 3.12 */
            PyObject *storage = PyObject_GetAttrString(value, "storage");
            Py_DECREF(value);
            if (storage == NULL) return otherwise();
            value = storage;
        }
        Py_buffer view; /* of a NumPy scalar or a Packed */
        if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) == 0) {
            if (view.len == parameter->size) {
                memcpy(out, view.buf, (size_t)view.len);
                result = DONE;
            }
            PyBuffer_Release(&view);
        } else {
            result = otherwise();
        }
    }
    Py_DECREF(value);
    return result;
}

static inline int pack_known(Call *call, Known *known, Parameter *parameter, PyObject *argument, char *out) {
    uint64_t address = 0;
    int result = OTHERWISE;
    if (known->way == TORCH || known->way == EXCHANGE)
        result = pack_tensor(call, known, parameter, argument, &address);
    else if (known->way == CUPY)
        result = pack_cupy(known, parameter, argument, &address);
    if (known->way == CUPY && address == 0) return OTHERWISE; /* only right if the array is empty */
    if (result == DONE) memcpy(out, &address, 8);
    return result;
}

static int pack_unknown(Call *call, Parameter *parameter, PyObject *argument, char *out) {
    if (PyLong_CheckExact(argument)) return pack_converted(parameter, argument, out);
    Known *known;
    int result = learn(call, call->learn_array, argument, &known);
    return result == DONE ? pack_known(call, known, parameter, argument, out) : result;
}

static int pack_pointer(Call *call, Parameter *parameter, PyObject *argument, char *out) {
    if (argument == Py_None) {
        memset(out, 0, 8);
        return DONE;
    }
    Known *known = find_known(call, Py_TYPE(argument));
    return known == NULL ? pack_unknown(call, parameter, argument, out)
                         : pack_known(call, known, parameter, argument, out);
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
        long long value = as_long_long(argument, &overflow);
        int width = 8 * parameter->size;
        if (parameter->is_signed)
            fits = !overflow && (width == 64 || (value >= -(1LL << (width - 1)) && value < 1LL << (width - 1)));
        else
            fits = !overflow && value >= 0 && value < 1LL << width;
        bits = (uint64_t)value;
    } else {
        bits = AS_UINT64(argument);
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

static int pack(Call *call, Parameter *parameter, PyObject *argument, char *out) {
    switch (parameter->kind) {
    case POINTER: return pack_pointer(call, parameter, argument, out);
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

static void remember_stream(Call *call, PyObject *stream, uint64_t handle) {
#ifndef Py_GIL_DISABLED /* which keeps the two together */
    call->last_handle = handle;
    Py_XSETREF(call->last_stream, Py_NewRef(stream));
#else
    (void)call, (void)stream, (void)handle;
#endif
}

static inline int read_stream(Call *call, PyObject *stream, void **out) {
    uint64_t handle = 0;
    int result = DONE;
    if (stream == Py_None) {
    } else if (stream == call->last_stream) {
        handle = call->last_handle;
    } else if ((PyObject *)Py_TYPE(stream) == call->stream_type) {
        PyObject *pair = PyObject_CallMethodNoArgs(stream, call->names->stream_protocol);
        if (pair == NULL) return otherwise();
        if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
            result = as_number(Py_NewRef(PyTuple_GET_ITEM(pair, 1)), &handle);
        else
            result = OTHERWISE;
        Py_DECREF(pair);
        if (result == DONE && handle == 0) result = OTHERWISE; /* a closed one */
    } else if (PyLong_CheckExact(stream)) {
        result = as_number(Py_NewRef(stream), &handle);
    } else {
        Known *known = find_known(call, Py_TYPE(stream));
        if (known == NULL) {
            result = learn(call, call->learn_stream, stream, &known);
            if (result != DONE) return result;
        }
        if (known->way != STREAM_ATTRIBUTE) return OTHERWISE;
        result = as_number(read_attribute(&known->handle, stream), &handle);
        if (result == DONE) remember_stream(call, stream, handle);
    }
    *out = (void *)(uintptr_t)(handle != 0 ? handle : call->default_stream);
    return result;
}

static inline int read_extent(PyObject *number, unsigned int *out) {
    if (!PyLong_CheckExact(number)) return OTHERWISE;
    int overflow;
    long long value = as_long_long(number, &overflow);
    if (overflow || value < 1 || value > INT32_MAX) return otherwise();
    *out = (unsigned int)value;
    return DONE;
}

static inline int read_extents(PyObject *extents, unsigned int *out) {
    out[0] = out[1] = out[2] = 1;
    if (PyLong_CheckExact(extents)) return read_extent(extents, out);
    if (!PyTuple_CheckExact(extents)) return OTHERWISE;
    Py_ssize_t count = PyTuple_GET_SIZE(extents);
    if (count < 1 || count > 3) return OTHERWISE;
    for (Py_ssize_t i = 0; i < count; i++) {
        int result = read_extent(PyTuple_GET_ITEM(extents, i), &out[i]);
        if (result != DONE) return result;
    }
    return DONE;
}

/* Keyword arguments: shared_memory, and the others as long as they ask for nothing. */
static int read_keywords(Call *call, PyObject *const *values, PyObject *keywords, unsigned int *shared_memory) {
    Names *names = call->names;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); i++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, i), *value = values[i];
        if (name == names->shared_memory) { /* names in a program are interned */
            if (!PyLong_CheckExact(value)) return OTHERWISE;
            int overflow;
            long long size = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow || size < 0 || size > INT32_MAX) return otherwise();
            *shared_memory = (unsigned int)size;
        } else if (name == names->cluster ? value != Py_None
                   : name == names->cooperative || name == names->programmatic ? value != Py_False
                                                                               : 1) {
            return OTHERWISE;
        }
    }
    return DONE;
}

/* --- the call --- */

static inline int issue(LaunchFunction launch, State *state, LaunchConfig *config, void **arguments, void **buffer) {
    void *function = atomic_load_explicit(&state->function, memory_order_relaxed);
    if (function == NULL) return launch(config, state->kernel, arguments, buffer);
    int status = launch(config, function, arguments, buffer);
    if (status != INVALID_HANDLE) return status;
    status = launch(config, state->kernel, arguments, buffer);
    if (status == 0) atomic_store_explicit(&state->function, NULL, memory_order_relaxed); /* another context's stream */
    return status;
}

/* `args` without the launcher. */
static inline int launch(Call *call, PyObject *launcher, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                  State **state) {
    enum { STREAM, GRID, BLOCK, FIRST };
    if (count != FIRST + call->count || call->generation != atomic_load_explicit(&generation, memory_order_relaxed))
        return OTHERWISE;
    LaunchConfig config = {.attribute_count = 0};
    int result;
    if ((result = read_extents(args[GRID], config.grid)) != DONE) return result;
    if ((result = read_extents(args[BLOCK], config.block)) != DONE) return result;
    if (keywords != NULL && (result = read_keywords(call, args + count, keywords, &config.shared_memory)) != DONE)
        return result;

    PyObject *found = read_slot(&call->state, launcher);
    if (found == NULL) {
        if (otherwise() == FAILED) return FAILED;
        found = PyObject_CallOneArg(call->prepare, launcher);
        if (found == NULL) return otherwise();
    }
    if (!Py_IS_TYPE(found, call->names->state_type)) {
        Py_DECREF(found);
        return OTHERWISE;
    }
    *state = (State *)found; /* the caller releases it */
    if (config.shared_memory > atomic_load_explicit(&(*state)->granted, memory_order_relaxed)) return OTHERWISE;

    char values[MOST_BYTES];
    void *arguments[MOST_PARAMETERS];
    for (Py_ssize_t i = 0; i < call->count; i++) {
        Parameter *parameter = &call->parameters[i];
        char *out = values + parameter->offset;
        if (!call->is_buffer) arguments[i] = out;
        if ((result = pack(call, parameter, args[FIRST + i], out)) != DONE) return result;
    }
    size_t size = call->size;
    void *buffer[] = {BUFFER_POINTER, values, BUFFER_SIZE, &size, NULL};
    if ((result = read_stream(call, args[STREAM], &config.stream)) != DONE) return result;

    int status;
    /* A launch waits where the queue is full, perhaps for a host function that needs the interpreter. */
    Py_BEGIN_ALLOW_THREADS
    status = call->is_buffer ? issue(call->launch, *state, &config, NULL, buffer)
                             : issue(call->launch, *state, &config, arguments, NULL);
    Py_END_ALLOW_THREADS
    return status == 0 ? DONE : OTHERWISE;
}

static PyObject *call_get_fallback(PyObject *self, void *Py_UNUSED(closure)) {
    PyObject *fallback;
    Py_BEGIN_CRITICAL_SECTION(self);
    fallback = Py_XNewRef(((Call *)self)->fallback);
    Py_END_CRITICAL_SECTION();
    return fallback != NULL ? fallback : no_longer_in_use();
}

static int call_set_fallback(PyObject *self, PyObject *fallback, void *Py_UNUSED(closure)) {
    if (fallback == NULL) {
        PyErr_SetString(PyExc_TypeError, "there has to be a Python way");
        return -1;
    }
    PyObject *before;
    Py_BEGIN_CRITICAL_SECTION(self);
    before = ((Call *)self)->fallback;
    ((Call *)self)->fallback = Py_NewRef(fallback);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before);
    return 0;
}

/* Calls a method with its object before the arguments. */
static PyObject *call_with(PyObject *method, PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (flags & PY_VECTORCALL_ARGUMENTS_OFFSET) { /* args[-1] is free meanwhile */
        PyObject **all = (PyObject **)args - 1, *before = all[0];
        all[0] = self;
        PyObject *result = PyObject_Vectorcall(method, all, (size_t)count + 1, keywords);
        all[0] = before;
        return result;
    }
    Py_ssize_t total = count + (keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords));
    PyObject **all = PyMem_Malloc((size_t)(total + 1) * sizeof *all);
    if (all == NULL) return PyErr_NoMemory();
    all[0] = self;
    if (total > 0) memcpy(all + 1, args, (size_t)total * sizeof *all);
    PyObject *result = PyObject_Vectorcall(method, all, (size_t)count + 1, keywords);
    PyMem_Free(all);
    return result;
}

/* The Python way; what it could launch, with so much shared memory, is launched here next time. `args` without the launcher. */
static PyObject *launch_otherwise(Call *call, PyObject *launcher, PyObject *const *args, size_t flags, PyObject *keywords,
                                  State *state) {
    PyObject *fallback = call_get_fallback((PyObject *)call, NULL);
    if (fallback == NULL) return NULL;
    PyObject *result = call_with(fallback, launcher, args, flags, keywords);
    Py_DECREF(fallback);
    if (result == NULL || state == NULL || keywords == NULL) return result;
    unsigned int shared_memory = 0;
    if (read_keywords(call, args + PyVectorcall_NARGS(flags), keywords, &shared_memory) == DONE) {
        long before = atomic_load(&state->granted);
        while (before < (long)shared_memory && !atomic_compare_exchange_weak(&state->granted, &before, shared_memory));
    }
    return result;
}

static inline PyObject *call_launcher(Call *call, PyObject *launcher, PyObject *const *args, size_t flags, PyObject *keywords) {
    State *state = NULL;
    PyObject *result = NULL;
    int done = launch(call, launcher, args, PyVectorcall_NARGS(flags), keywords, &state);
    if (done == DONE)
        result = Py_NewRef(Py_None);
    else if (done == OTHERWISE)
        result = launch_otherwise(call, launcher, args, flags, keywords, state);
    Py_XDECREF(state);
    return result;
}

static PyObject *call_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count == 0) { /* not even a launcher: the function says what it takes */
        PyObject *fallback = call_get_fallback(self, NULL);
        PyObject *result = fallback == NULL ? NULL : PyObject_Vectorcall(fallback, args, flags, keywords);
        Py_XDECREF(fallback);
        return result;
    }
    /* args[0], the launcher, is free meanwhile for the Python way */
    return call_launcher((Call *)self, args[0], args + 1, (size_t)(count - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, keywords);
}

static PyObject *call_read_address(PyObject *self, PyObject *argument) {
    Call *call = (Call *)self;
    uint64_t address;
    int result = OTHERWISE;
    if (call->count > 0 && call->parameters[0].kind == POINTER)
        result = pack_pointer(call, &call->parameters[0], argument, (char *)&address);
    if (result == FAILED) return NULL;
    return result == DONE ? PyLong_FromUnsignedLongLong(address) : Py_NewRef(Py_None);
}

static PyObject *call_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type)) {
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static int call_traverse(PyObject *self, visitproc visit, void *arg) {
    Call *call = (Call *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(call->module);
    Py_VISIT(call->fallback);
    Py_VISIT(call->learn_array);
    Py_VISIT(call->learn_stream);
    Py_VISIT(call->prepare);
    Py_VISIT(call->stream_type);
    Py_VISIT(call->state.type);
    Py_VISIT(call->last_stream);
    for (int i = 0; i < atomic_load(&call->known_count); i++) {
        Py_VISIT(call->known[i].type);
        Py_VISIT(call->known[i].data_type);
        Py_VISIT(call->known[i].torch);
    }
    for (Py_ssize_t i = 0; i < call->count; i++) {
        Py_VISIT(call->parameters[i].dtype);
        Py_VISIT(call->parameters[i].scalar);
        Py_VISIT(call->parameters[i].convert);
    }
    return 0;
}

static int call_clear(PyObject *self) {
    Call *call = (Call *)self;
    Py_ssize_t count = call->count;
    call->generation = atomic_load(&generation) - 1; /* first: should it be called meanwhile or later, it launches nothing */
    call->count = 0;                                 /* and reads no address */
    Py_CLEAR(call->fallback);
    Py_CLEAR(call->learn_array);
    Py_CLEAR(call->learn_stream);
    Py_CLEAR(call->prepare);
    Py_CLEAR(call->stream_type);
    Py_CLEAR(call->state.type);
    Py_CLEAR(call->last_stream);
    int known = atomic_exchange(&call->known_count, 0);
    for (int i = 0; i < known; i++) {
        Py_CLEAR(call->known[i].type);
        Py_CLEAR(call->known[i].data_type);
        Py_CLEAR(call->known[i].torch);
        Py_CLEAR(call->known[i].handle.name);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_CLEAR(call->parameters[i].dtype);
        Py_CLEAR(call->parameters[i].scalar);
        Py_CLEAR(call->parameters[i].convert);
    }
    Py_CLEAR(call->module);
    return 0;
}

static void call_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    call_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Call, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef call_methods[] = {
    {"read_address", call_read_address, METH_O,
     "Return what a launch would pass on for the first parameter, a pointer; None if that is for the Python way."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef call_getset[] = {
    {"fallback", call_get_fallback, call_set_fallback, "The Python way: a function like __call__.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "The method __call__ of the launchers of one signature."},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_clear, call_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, call_get},
    {Py_tp_members, call_members},
    {Py_tp_methods, call_methods},
    {Py_tp_getset, call_getset},
    {0, NULL},
};

static PyType_Spec call_spec = {
    .name = "jitlto.launch._launch.Call",
    .basicsize = sizeof(Call),
    .itemsize = sizeof(Parameter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = call_slots,
};

static void state_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot state_slots[] = {
    {Py_tp_doc, "What a launcher has beside its signature: the kernel's handles."},
    {Py_tp_dealloc, state_dealloc},
    {0, NULL},
};

static PyType_Spec state_spec = {
    .name = "jitlto.launch._launch.State",
    .basicsize = sizeof(State),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = state_slots,
};

#include "_lookup.c"
#include "_called.c"
#include "_bound.c"
#include "_xla.c"

/* --- the module --- */

static PyObject *make_state(PyObject *module, PyObject *args) {
    Names *names = names_of(module);
    unsigned long long kernel, function;
    if (names == NULL || !PyArg_ParseTuple(args, "KK:make_state", &kernel, &function)) return NULL;
    State *state = PyObject_New(State, names->state_type);
    if (state == NULL) return NULL;
    state->kernel = (void *)(uintptr_t)kernel;
    atomic_init(&state->function, (void *)(uintptr_t)function);
    atomic_init(&state->granted, 0);
    return (PyObject *)state;
}

/* (kind, size, alignment, is_signed, is_constant, code, bits, dtype, scalar, convert) */
static int read_parameter(PyObject *row, Parameter *parameter, size_t *end, int *is_buffer) {
    int kind, alignment;
    PyObject *dtype, *scalar, *convert;
    if (!PyArg_ParseTuple(row, "iiippiiOOO", &kind, &parameter->size, &alignment, &parameter->is_signed,
                          &parameter->is_constant, &parameter->code, &parameter->bits, &dtype, &scalar, &convert))
        return -1;
    if (kind < POINTER || kind > CONVERTED || parameter->size < 1 || parameter->size > MOST_BYTES ||
        alignment < 1 || alignment > MOST_BYTES || (alignment & (alignment - 1)) != 0 ||
        (kind == POINTER && parameter->size != 8) || (kind == INTEGER && parameter->size > 8) ||
        (kind == FLOAT && parameter->size != 4) || (kind == DOUBLE && parameter->size != 8) ||
        (kind == BOOLEAN && parameter->size != 1)) {
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
    parameter->dtype = none_as_null(dtype);
    parameter->scalar = none_as_null(scalar);
    parameter->convert = Py_NewRef(convert);
    return 0;
}

static PyObject *make_call(PyObject *module, PyObject *args) {
    Names *names = names_of(module);
    PyObject *rows, *fallback, *learn_array, *learn_stream, *prepare, *stream_type;
    unsigned long long function, default_stream;
    if (names == NULL ||
        !PyArg_ParseTuple(args, "O!KKOOOOO:make_call", &PyTuple_Type, &rows, &function, &default_stream, &stream_type,
                          &prepare, &learn_array, &learn_stream, &fallback))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    if (count > MOST_PARAMETERS) {
        PyErr_SetString(PyExc_ValueError, "too many parameters");
        return NULL;
    }
    Call *call = PyObject_GC_NewVar(Call, names->call_type, count);
    if (call == NULL) return NULL;
    memset((char *)call + offsetof(Call, vectorcall), 0,
           sizeof(Call) - offsetof(Call, vectorcall) + (size_t)count * sizeof(Parameter));
    call->vectorcall = call_vectorcall;
    call->module = Py_NewRef(module);
    call->names = names;
    call->launch = (LaunchFunction)(uintptr_t)function;
    call->default_stream = (uintptr_t)default_stream;
    call->generation = atomic_load(&generation) - (function == 0); /* without a function: of none, it never launches */
    call->fallback = Py_NewRef(fallback);
    call->learn_array = Py_NewRef(learn_array);
    call->learn_stream = Py_NewRef(learn_stream);
    call->prepare = Py_NewRef(prepare);
    call->stream_type = Py_NewRef(stream_type);
    call->state.name = names->state;
    call->is_buffer = count > 0;
    for (; call->count < count; call->count++) {
        if (read_parameter(PyTuple_GET_ITEM(rows, call->count), &call->parameters[call->count], &call->size,
                           &call->is_buffer) < 0) {
            Py_DECREF(call);
            return NULL;
        }
    }
    PyObject_GC_Track(call);
    return (PyObject *)call;
}

/* For functions that take three handles or pointers, without the objects that cuda.bindings makes of what they return. */
static PyObject *call_driver(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    uintptr_t values[4] = {0};
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "call_driver(function, first, second, third)");
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        values[i] = (uintptr_t)AS_UINT64(args[i]);
        if (values[i] == (uintptr_t)-1 && PyErr_Occurred()) return NULL;
    }
    if (values[0] == 0) {
        PyErr_SetString(PyExc_ValueError, "no function");
        return NULL;
    }
    int (*function)(uintptr_t, uintptr_t, uintptr_t) = (int (*)(uintptr_t, uintptr_t, uintptr_t))values[0];
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = function(values[1], values[2], values[3]);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

static PyObject *forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    atomic_fetch_add(&generation, 1);
    Py_RETURN_NONE;
}

static PyObject *make_table(PyObject *module, PyObject *Py_UNUSED(none)) {
    Names *names = names_of(module);
    return names == NULL ? NULL : new_table(names->table_type);
}

static PyObject *make_lookup(PyObject *module, PyObject *fallback) {
    Names *names = names_of(module);
    return names == NULL ? NULL : new_lookup(names->lookup_type, names->table_type, fallback);
}

static PyObject *make_called_class(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *base, *method;
    if (!PyArg_ParseTuple(args, "O!O:make_called_class", &PyType_Type, &base, &method)) return NULL;
    return new_called_class((PyTypeObject *)base, method);
}

static PyObject *replace_called_method(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *type, *method;
    if (!PyArg_ParseTuple(args, "O!O:set_called_method", &PyType_Type, &type, &method)) return NULL;
    return set_called_method((PyTypeObject *)type, method) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"make_called_class", make_called_class, METH_VARARGS,
     "make_called_class(base, method): a class below another one, with another method __call__."},
    {"set_called_method", replace_called_method, METH_VARARGS,
     "set_called_method(class, method): what later objects of a class of make_called_class() call."},
    {"make_lookup", make_lookup, METH_O, "Return a method that asks a function for what it was not asked before."},
    {"make_table", make_table, METH_NOARGS, "Return an empty table for the attribute _compiled_table of an object."},
    {"make_call", make_call, METH_VARARGS,
     "make_call(rows, function, default_stream, stream_type, prepare, learn_array, learn_stream, fallback)"},
    {"make_bound", make_bound, METH_VARARGS,
     "make_bound(function, state, extents, stream, own_stream, arguments, fallback): a launch that takes no arguments."},
    {"make_state", make_state, METH_VARARGS,
     "make_state(kernel, function): what a launcher keeps of a kernel: its handle, and that in the current context."},
    {"call_driver", (PyCFunction)(void (*)(void))call_driver, METH_FASTCALL,
     "call_driver(function, first, second, third): call a function by its address; return its status."},
    {"make_xla_handler", make_xla_handler, METH_VARARGS,
     "make_xla_handler(functions, major, minor): the handler for XLA, of a version of its interface. The functions are the\n"
     "addresses of cuLaunchKernelEx, cuStreamGetCtx, cuCtxPushCurrent and cuCtxPopCurrent; the last three 0 without streams."},
    {"add_xla_kernel", add_xla_kernel, METH_VARARGS,
     "add_xla_kernel(digest, handle): let calls by XLA find a kernel, which the caller keeps loaded."},
    {"forget", forget, METH_NOARGS, "Send all launches of the calls made so far the Python way."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
    Names *names = PyModule_GetState(module);
    struct { PyObject **place; const char *text; } texts[] = {
        {&names->c_contiguous, "_c_contiguous"}, {&names->data, "data"}, {&names->dtype, "dtype"},
        {&names->is_conj, "is_conj"}, {&names->is_neg, "is_neg"}, {&names->ptr, "ptr"},
        {&names->requires_grad, "requires_grad"}, {&names->state, "_compiled_state"},
        {&names->stream_protocol, "__cuda_stream__"}, {&names->shared_memory, "shared_memory"},
        {&names->cluster, "cluster"}, {&names->cooperative, "cooperative"}, {&names->programmatic, "programmatic"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((*texts[i].place = PyUnicode_InternFromString(texts[i].text)) == NULL) return -1;
    names->call_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &call_spec, NULL);
    if (names->call_type == NULL) return -1;
    names->state_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &state_spec, NULL);
    if (names->state_type == NULL) return -1;
    names->table_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &table_spec, NULL);
    if (names->table_type == NULL) return -1;
    names->lookup_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &lookup_spec, NULL);
    if (names->lookup_type == NULL) return -1;
    names->bound_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &bound_spec, NULL);
    if (names->bound_type == NULL) return -1;
    struct { const char *name; int value; } constants[] = {
        {"POINTER", POINTER}, {"INTEGER", INTEGER}, {"FLOAT", FLOAT}, {"DOUBLE", DOUBLE}, {"BOOLEAN", BOOLEAN},
        {"CONVERTED", CONVERTED}, {"MOST_BYTES", MOST_BYTES}, {"MOST_PARAMETERS", MOST_PARAMETERS},
        {"INTERFACE", INTERFACE}, {"TORCH_INTERFACE_SIZE", sizeof(TorchInterface)},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) return -1;
    return PyModule_AddObjectRef(module, "Call", (PyObject *)names->call_type);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    Names *names = PyModule_GetState(module);
    Py_VISIT(names->call_type);
    Py_VISIT(names->state_type);
    Py_VISIT(names->table_type);
    Py_VISIT(names->lookup_type);
    Py_VISIT(names->bound_type);
    return 0;
}

static int module_clear(PyObject *module) {
    Names *names = PyModule_GetState(module);
    Py_CLEAR(names->call_type);
    Py_CLEAR(names->state_type);
    Py_CLEAR(names->table_type);
    Py_CLEAR(names->lookup_type);
    Py_CLEAR(names->bound_type);
    return 0;
}

static void module_free(void *module) {
    module_clear(module);
    PyObject **texts = PyModule_GetState(module); /* kept until now: what is not cleared yet may still use them */
    for (size_t i = 0; i < offsetof(Names, call_type) / sizeof *texts; i++) Py_CLEAR(texts[i]);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_launch",
    .m_doc = "The compiled core of launches.",
    .m_size = sizeof(Names),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__launch(void) { return PyModuleDef_Init(&definition); }
