/* Launches from XLA: a handler of its foreign function interface, which runs without Python.
 *
 * A call's attribute is an array of 64-bit words, which jitlto/frameworks/jax_call.py writes: what to launch, how, and
 * where each argument of the kernel comes from. It names the kernel by its digest, which means the same in every process, so
 * that XLA may keep compiled programs; the handles are in a table of this process.
 */

/* --- the layouts of others: xla/ffi/api/c_api.h, major version 0 --- */

typedef struct XlaExtension {
    size_t struct_size;
    int type;
    struct XlaExtension *next;
} XlaExtension;

#define XLA_HEAD size_t struct_size; XlaExtension *extensions; /* of most of those that follow */

typedef struct {
    XLA_HEAD
    int major, minor;
} XlaVersion;

typedef struct {
    size_t struct_size;
    XlaVersion version;
    uint32_t traits;
} XlaMetadata;

typedef struct {
    XlaExtension base;
    XlaMetadata *metadata;
} XlaMetadataExtension;

typedef struct {
    XLA_HEAD
    const char *message;
    int code;
} XlaErrorArguments;

typedef struct {
    XLA_HEAD
    void *context, *stream;
} XlaStreamArguments;

typedef struct {
    XLA_HEAD
    XlaVersion version;
    void *internal;
    void *(*create_error)(XlaErrorArguments *);
    void *get_message, *destroy_error, *register_handler;
    void *(*get_stream)(XlaStreamArguments *);
} XlaApi;

typedef struct {
    XLA_HEAD
    int type;
    void *data;
} XlaBuffer;

typedef struct { /* of arguments and of results */
    XLA_HEAD
    int64_t size;
    int *types;
    void **values;
} XlaValues;

typedef struct {
    int type;
    size_t size;
    const int64_t *data;
} XlaArray;

typedef struct {
    XLA_HEAD
    int64_t size;
    int *types;
    void *names;
    void **values;
} XlaAttributes;

typedef struct {
    XLA_HEAD
    const XlaApi *api;
    void *context;
    int stage;
    XlaValues arguments, results;
    XlaAttributes attributes;
} XlaFrame;

enum { XLA_METADATA = 1, XLA_COMMAND_BUFFER = 1, XLA_EXECUTE = 3, XLA_BUFFER = 1, XLA_ARRAY = 1, XLA_INT64 = 5 };
enum { XLA_NOT_FOUND = 5, XLA_PRECONDITION = 9, XLA_INTERNAL = 13 };
enum { COOPERATIVE = 2, CLUSTER = 4 }; /* CUlaunchAttributeID, cuda.h */

typedef struct { /* CUlaunchAttribute, cuda.h */
    uint64_t id;
    union {
        uint32_t numbers[3];
        char space[64];
    } value;
} LaunchAttribute;

/* --- a call, in words of 64 bits --- */

enum { DIGEST = 0, GRID = 4, BLOCK = 7, SHARED = 10, CLUSTERS = 11, IS_COOPERATIVE = 14, COUNT = 15, SOURCES = 16 };
/* The source of an argument: one of these, with the bytes of a value above its lowest byte; and the place of the value or the
 * number of an array. */
enum { VALUE, INPUT, OUTPUT, KIND = 0xff };

/* --- the kernels of this process --- */

typedef struct Kernel {
    struct Kernel *next;
    int64_t digest[4];
    void *handle;
} Kernel;

enum { BUCKETS = 1024 };
static _Atomic(Kernel *) kernels[BUCKETS]; /* only added to */
static struct {
    LaunchFunction launch;
    int (*get_context)(void *stream, void **), (*push)(void *), (*pop)(void **);
    int major, minor;
    unsigned generation;
} xla;

static void *find_kernel(const int64_t *digest) {
    for (Kernel *each = atomic_load(&kernels[(uint64_t)digest[0] % BUCKETS]); each != NULL; each = each->next)
        if (memcmp(each->digest, digest, sizeof each->digest) == 0) return each->handle;
    return NULL;
}

static void *xla_error(const XlaFrame *frame, int code, const char *message) {
    XlaErrorArguments error = {sizeof error, NULL, message, code};
    return frame->api->create_error(&error);
}

/* Its only attribute; NULL if that is none. */
static const XlaArray *find_call(const XlaAttributes *attributes) {
    const XlaArray *array = attributes->size == 1 && attributes->types[0] == XLA_ARRAY ? attributes->values[0] : NULL;
    return array != NULL && array->type == XLA_INT64 && array->size >= SOURCES ? array : NULL;
}

/* A kernel is launched in the current context, which may not be that of the stream, or none. */
static int launch_in_context(const LaunchConfig *config, void *handle, void **parameters) {
    int status = xla.launch(config, handle, parameters, NULL);
    if (status == 0 || xla.get_context == NULL) return status;
    void *context = NULL;
    if (xla.get_context(config->stream, &context) != 0 || xla.push(context) != 0) return status;
    status = xla.launch(config, handle, parameters, NULL);
    xla.pop(&context);
    return status;
}

static void *xla_launch(XlaFrame *frame, const XlaArray *call) {
    const int64_t *words = call->data;
    void *handle = find_kernel(words), *pointers[MOST_PARAMETERS], *parameters[MOST_PARAMETERS];
    if (handle == NULL)
        return xla_error(frame, XLA_NOT_FOUND, "jitlto: the kernel is not loaded; trace the function in this process");
    int64_t count = words[COUNT];
    if (count < 0 || count > MOST_PARAMETERS || SOURCES + 2 * (size_t)count > call->size)
        return xla_error(frame, XLA_INTERNAL, "jitlto: malformed call");
    for (int64_t i = 0; i < count; i++) {
        int64_t source = words[SOURCES + 2 * i], place = words[SOURCES + 2 * i + 1];
        int64_t kind = source & KIND, size = source >> 8;
        if (kind == VALUE && size > 0 && place > 0 && (size_t)place < call->size &&
            (size_t)size <= (call->size - (size_t)place) * sizeof *words) {
            parameters[i] = (void *)(words + place);
            continue;
        }
        const XlaValues *values = source == INPUT ? &frame->arguments : &frame->results;
        if ((source != INPUT && source != OUTPUT) || place < 0 || place >= values->size || values->types[place] != XLA_BUFFER)
            return xla_error(frame, XLA_INTERNAL, "jitlto: malformed call");
        pointers[i] = ((XlaBuffer *)values->values[place])->data;
        parameters[i] = &pointers[i];
    }
    LaunchAttribute attributes[2] = {{0}};
    unsigned number = 0;
    if (words[CLUSTERS] != 0) {
        attributes[number].id = CLUSTER;
        for (int i = 0; i < 3; i++) attributes[number].value.numbers[i] = (uint32_t)words[CLUSTERS + i];
        number++;
    }
    if (words[IS_COOPERATIVE] != 0) {
        attributes[number].id = COOPERATIVE;
        attributes[number++].value.numbers[0] = 1;
    }
    LaunchConfig config = {.shared_memory = (unsigned)words[SHARED], .attributes = attributes, .attribute_count = number};
    for (int i = 0; i < 3; i++) {
        config.grid[i] = (unsigned)words[GRID + i];
        config.block[i] = (unsigned)words[BLOCK + i];
    }
    if (xla.get_context != NULL) { /* else there are no streams */
        XlaStreamArguments stream = {sizeof stream, NULL, frame->context, NULL};
        void *error = frame->api->get_stream(&stream);
        if (error != NULL) return error;
        config.stream = stream.stream;
    }
    int status = launch_in_context(&config, handle, parameters);
    if (status == 0) return NULL;
    char message[96];
    snprintf(message, sizeof message, "jitlto: the driver rejected the launch with the status %d (CUresult)", status);
    return xla_error(frame, XLA_INTERNAL, message);
}

static void *xla_handler(XlaFrame *frame) {
    if (frame->extensions != NULL && frame->extensions->type == XLA_METADATA) {
        XlaMetadata *metadata = ((XlaMetadataExtension *)frame->extensions)->metadata;
        metadata->version = (XlaVersion){sizeof(XlaVersion), NULL, xla.major, xla.minor};
        metadata->traits = XLA_COMMAND_BUFFER;
        return NULL;
    }
    if (frame->stage != XLA_EXECUTE) return NULL;
    if (xla.launch == NULL || xla.generation != atomic_load(&generation))
        return xla_error(frame, XLA_PRECONDITION, "jitlto: no driver, or a forked process, which cannot use it");
    const XlaArray *call = find_call(&frame->attributes);
    return call != NULL ? xla_launch(frame, call) : xla_error(frame, XLA_INTERNAL, "jitlto: malformed call");
}

static PyObject *make_xla_handler(PyObject *Py_UNUSED(module), PyObject *arguments) {
    unsigned long long launch, get_context, push, pop;
    if (!PyArg_ParseTuple(arguments, "(KKKK)ii:make_xla_handler", &launch, &get_context, &push, &pop, &xla.major, &xla.minor))
        return NULL;
    xla.launch = (LaunchFunction)(uintptr_t)launch;
    xla.get_context = (int (*)(void *, void **))(uintptr_t)get_context;
    xla.push = (int (*)(void *))(uintptr_t)push;
    xla.pop = (int (*)(void **))(uintptr_t)pop;
    xla.generation = atomic_load(&generation);
    return PyCapsule_New((void *)(uintptr_t)xla_handler, "xla._CUSTOM_CALL_TARGET", NULL);
}

static PyObject *add_xla_kernel(PyObject *Py_UNUSED(module), PyObject *arguments) {
    Py_buffer digest;
    unsigned long long handle;
    if (!PyArg_ParseTuple(arguments, "y*K:add_xla_kernel", &digest, &handle)) return NULL;
    Kernel *made = digest.len == sizeof made->digest ? PyMem_RawMalloc(sizeof *made) : NULL;
    if (made != NULL) memcpy(made->digest, digest.buf, sizeof made->digest);
    PyBuffer_Release(&digest);
    if (made == NULL) {
        PyErr_SetString(PyExc_ValueError, "a digest has 32 bytes");
        return NULL;
    }
    made->handle = (void *)(uintptr_t)handle;
    _Atomic(Kernel *) *bucket = &kernels[(uint64_t)made->digest[0] % BUCKETS];
    made->next = atomic_load(bucket);
    while (!atomic_compare_exchange_weak(bucket, &made->next, made)) continue;
    Py_RETURN_NONE;
}
