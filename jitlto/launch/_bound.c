/* Launches whose arguments were checked and packed once; a part of _launch.c.
 *
 * A Bound is a function without arguments. What the driver does not take, and every error, it leaves to `fallback`, the
 * Python way of the same launch.
 */

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *module; /* keeps the names */
    Names *names;
    LaunchFunction launch;
    unsigned generation;
    State *state;
    PyObject *fallback;
    PyObject *own_stream; /* of cuda.core, which its owner may close; or NULL */
    PyObject *dict;       /* what the caller keeps alive with it */
    LaunchConfig config;
    size_t size;          /* of the arguments */
    void **arguments;     /* where each of them lies, unless they are passed as one */
    char values[];
} Bound;

/* Whether a stream of cuda.core still has the handle with which the launch was made. */
static int is_open(Bound *bound) {
    PyObject *pair = PyObject_CallMethodNoArgs(bound->own_stream, bound->names->stream_protocol);
    if (pair == NULL) return otherwise();
    uint64_t handle = 0;
    int result = OTHERWISE;
    if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        result = as_number(Py_NewRef(PyTuple_GET_ITEM(pair, 1)), &handle);
    Py_DECREF(pair);
    return result == DONE && (uintptr_t)bound->config.stream != handle ? OTHERWISE : result;
}

static PyObject *bound_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    Bound *bound = (Bound *)self;
    int result = bound->generation == atomic_load_explicit(&generation, memory_order_relaxed) ? DONE : OTHERWISE;
    if (PyVectorcall_NARGS(flags) != 0 || keywords != NULL) result = OTHERWISE;
    if (result == DONE && bound->own_stream != NULL) result = is_open(bound);
    if (result == DONE) {
        void *buffer[] = {BUFFER_POINTER, bound->values, BUFFER_SIZE, &bound->size, NULL};
        int status;
        /* As launch() does. */
        Py_BEGIN_ALLOW_THREADS
        status = issue(bound->launch, bound->state, &bound->config, bound->arguments, bound->arguments ? NULL : buffer);
        Py_END_ALLOW_THREADS
        if (status == 0) Py_RETURN_NONE;
        result = OTHERWISE;
    }
    if (result == FAILED) return NULL;
    return bound->fallback == NULL ? no_longer_in_use() : PyObject_Vectorcall(bound->fallback, args, flags, keywords);
}

static int bound_traverse(PyObject *self, visitproc visit, void *arg) {
    Bound *bound = (Bound *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(bound->module);
    Py_VISIT(bound->fallback);
    Py_VISIT(bound->own_stream);
    Py_VISIT(bound->dict);
    return 0;
}

static int bound_clear(PyObject *self) {
    Bound *bound = (Bound *)self;
    bound->generation = atomic_load(&generation) - 1; /* should it be called once more */
    Py_CLEAR(bound->fallback);
    Py_CLEAR(bound->own_stream);
    Py_CLEAR(bound->dict);
    Py_CLEAR(bound->module);
    return 0;
}

static void bound_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    bound_clear(self);
    Py_XDECREF(((Bound *)self)->state);
    PyMem_Free(((Bound *)self)->arguments);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Copying and sending are the Python way's to refuse. */
static PyObject *bound_reduce(PyObject *self, PyObject *protocol) {
    PyObject *fallback = ((Bound *)self)->fallback;
    return fallback == NULL ? no_longer_in_use() : PyObject_CallMethod(fallback, "__reduce_ex__", "O", protocol);
}

static PyMethodDef bound_methods[] = {
    {"__reduce_ex__", bound_reduce, METH_O, "As the Python way."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Bound, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Bound, dict), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Bound, fallback), READONLY, "The Python way."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, "A function without arguments that launches a kernel."},
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_clear, bound_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, bound_members},
    {Py_tp_methods, bound_methods},
    {0, NULL},
};

static PyType_Spec bound_spec = {
    .name = "jitlto.launch._launch.Bound",
    .basicsize = sizeof(Bound),
    .itemsize = 1,
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bound_slots,
};

/* (function, state, (grid..., block..., shared_memory), stream, own_stream, arguments, fallback); the arguments as a tuple
 * of (alignment, bytes). */
static PyObject *make_bound(PyObject *module, PyObject *args) {
    Names *names = names_of(module);
    unsigned long long function, stream;
    PyObject *state, *own_stream, *parts, *fallback;
    unsigned int extents[7];
    if (names == NULL ||
        !PyArg_ParseTuple(args, "KO!(IIIIIII)KOO!O:make_bound", &function, names->state_type, &state, &extents[0],
                          &extents[1], &extents[2], &extents[3], &extents[4], &extents[5], &extents[6], &stream,
                          &own_stream, &PyTuple_Type, &parts, &fallback))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(parts);
    size_t end = 0;
    int offsets[MOST_PARAMETERS], is_buffer = count > 0;
    char values[MOST_BYTES];
    if (count > MOST_PARAMETERS || function == 0) {
        PyErr_SetString(PyExc_ValueError, "too many parameters, or no function");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int alignment;
        Py_buffer part;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(parts, i), "iy*:make_bound", &alignment, &part)) return NULL;
        int is_valid = alignment >= 1 && alignment <= MOST_BYTES && (alignment & (alignment - 1)) == 0 && part.len >= 1;
        size_t offset = is_valid ? (end + (size_t)alignment - 1) & ~((size_t)alignment - 1) : 0;
        is_valid = is_valid && part.len <= MOST_BYTES && offset + (size_t)part.len <= MOST_BYTES;
        if (is_valid) {
            memset(values + end, 0, offset - end);
            memcpy(values + offset, part.buf, (size_t)part.len);
            offsets[i] = (int)offset;
            end = offset + (size_t)part.len;
        }
        PyBuffer_Release(&part);
        if (!is_valid) {
            PyErr_SetString(PyExc_ValueError, "unsupported parameter");
            return NULL;
        }
        if (alignment > MOST_ALIGNMENT) is_buffer = 0;
    }
    void **arguments = is_buffer ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *arguments);
    Bound *bound = is_buffer || arguments != NULL ? PyObject_GC_NewVar(Bound, names->bound_type, (Py_ssize_t)end) : NULL;
    if (bound == NULL) {
        PyMem_Free(arguments);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    bound->vectorcall = bound_vectorcall;
    bound->module = Py_NewRef(module);
    bound->names = names;
    bound->launch = (LaunchFunction)(uintptr_t)function;
    bound->generation = atomic_load(&generation);
    bound->state = (State *)Py_NewRef(state);
    bound->fallback = Py_NewRef(fallback);
    bound->own_stream = none_as_null(own_stream);
    bound->dict = NULL;
    bound->config = (LaunchConfig){.stream = (void *)(uintptr_t)stream, .shared_memory = extents[6]};
    memcpy(bound->config.grid, extents, 6 * sizeof *extents);
    bound->size = end;
    bound->arguments = arguments;
    memcpy(bound->values, values, end);
    for (Py_ssize_t i = 0; arguments != NULL && i < count; i++) arguments[i] = bound->values + offsets[i];
    PyObject_GC_Track(bound);
    return (PyObject *)bound;
}
