/* What is called in the place of methods of Python; a part of _launch.c.
 *
 * CPython calls an object with a method __call__ by way of a tuple and a dict of the arguments. The objects of the classes
 * made here pass the arguments on as they come, in an array: first to what is in the attribute `_quick`, a Signature (of a
 * launcher) or a list of answers, then to the method. A look-up is a method that does the same with such a list.
 */

/* --- answers: entries in a list, a table with open addressing whose free places hold None --- */

enum { VALUES, NAMES, ANSWER, GENERATION, FIELDS }; /* of an entry, a tuple: the names are those of the last values */

static int has_value(PyObject *object) { return PyUnicode_CheckExact(object) || PyLong_CheckExact(object); }

static size_t hash_request(PyObject *const *values, Py_ssize_t count, PyObject *names) {
    size_t hash = names == NULL ? 0 : (size_t)PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t part = has_value(values[i]) ? (size_t)PyObject_Hash(values[i]) : (size_t)(uintptr_t)values[i] >> 4;
        hash = (hash ^ part) * (size_t)0x9E3779B97F4A7C15u;
    }
    return hash >> 32;
}

/* Arguments are the same if they are the same objects, or numbers or texts of the same type and value: 1 and True are two. */
static int is_same(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    return has_value(a) && Py_TYPE(a) == Py_TYPE(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

static int is_entry(PyObject *entry, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    PyObject *known = PyTuple_GET_ITEM(entry, VALUES), *named = PyTuple_GET_ITEM(entry, NAMES);
    if (PyTuple_GET_SIZE(known) != count || PyTuple_GET_SIZE(named) != (names == NULL ? 0 : PyTuple_GET_SIZE(names))) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(named); i++)
        if (!is_same(PyTuple_GET_ITEM(named, i), PyTuple_GET_ITEM(names, i))) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_same(PyTuple_GET_ITEM(known, i), values[i])) return 0;
    /* What was made before a fork is not found. */
    return PyLong_AsUnsignedLong(PyTuple_GET_ITEM(entry, GENERATION)) == atomic_load_explicit(&generation, memory_order_relaxed);
}

/* The place of a request in a list, or the free one where it belongs; -1 if there is none. */
static Py_ssize_t find_place(PyObject *list, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    size_t size = (size_t)PyList_GET_SIZE(list), hash = hash_request(values, count, names); /* a power of two */
    for (size_t i = 0; i < size; i++) {
        size_t place = (hash + i) & (size - 1);
        PyObject *entry = PyList_GET_ITEM(list, (Py_ssize_t)place);
        if (!PyTuple_CheckExact(entry) || is_entry(entry, values, count, names)) return (Py_ssize_t)place;
    }
    return -1;
}

/* NULL without an exception if there is none. */
static PyObject *find_answer(PyObject *list, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    PyObject *found = NULL;
    Py_BEGIN_CRITICAL_SECTION(list);
    Py_ssize_t place = find_place(list, values, count, names);
    PyObject *entry = place < 0 ? Py_None : PyList_GET_ITEM(list, place);
    if (PyTuple_CheckExact(entry)) found = Py_NewRef(PyTuple_GET_ITEM(entry, ANSWER));
    Py_END_CRITICAL_SECTION();
    return found;
}

static PyObject *remember(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *list, *values, *names, *answer;
    if (!PyArg_ParseTuple(args, "O!O!O!O:remember", &PyList_Type, &list, &PyTuple_Type, &values, &PyTuple_Type, &names, &answer))
        return NULL;
    PyObject *entry = Py_BuildValue("OOOI", values, names, answer, atomic_load(&generation)), *before = NULL;
    if (entry == NULL) return NULL;
    Py_BEGIN_CRITICAL_SECTION(list);
    Py_ssize_t place = find_place(list, &PyTuple_GET_ITEM(values, 0), PyTuple_GET_SIZE(values), names);
    before = place < 0 ? entry : PyList_GET_ITEM(list, place);
    if (place >= 0) PyList_SET_ITEM(list, place, entry);
    Py_END_CRITICAL_SECTION();
    Py_DECREF(before); /* here, because destructors run */
    Py_RETURN_NONE;
}

/* --- a method --- */

/* In the place of a method `launcher`, which is then called `_ask_launcher`. */
static PyObject *look_up(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    PyObject *quick = PyObject_GetAttr(self, shared.quick), *found = NULL;
    if (quick == NULL) PyErr_Clear();
    if (quick != NULL && PyList_Check(quick))
        found = find_answer(quick, args, count + (keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords)), keywords);
    Py_XDECREF(quick);
    PyObject *method = found != NULL ? NULL : PyObject_GetAttr(self, shared.ask_launcher);
    if (method == NULL) return found;
    found = PyObject_Vectorcall(method, args, (size_t)count, keywords);
    Py_DECREF(method);
    return found;
}

static PyObject *make_lookup(PyObject *Py_UNUSED(module), PyObject *args) {
    static PyMethodDef definition = {"launcher", (PyCFunction)(void (*)(void))look_up, METH_FASTCALL | METH_KEYWORDS, NULL};
    static PyObject *kept = NULL;
    PyTypeObject *type;
    PyObject *text;
    if (!PyArg_ParseTuple(args, "O!U:make_lookup", &PyType_Type, &type, &text)) return NULL;
    Py_INCREF(text);
    Py_XSETREF(kept, text);
    definition.ml_doc = PyUnicode_AsUTF8(text);
    return PyDescr_NewMethod(type, &definition);
}

/* --- the classes --- */

typedef struct { /* behind what the objects of the class above have */
    vectorcallfunc vectorcall;
    PyObject *quick;
    Handles handles;
} Called;

static PyObject *called_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    Called *called = (Called *)((char *)self + Py_TYPE(self)->tp_vectorcall_offset);
    PyObject *quick = called->quick, *result = NULL;
    if (quick != NULL) {
        Py_ssize_t count = PyVectorcall_NARGS(flags);
        Py_INCREF(quick); /* another one may be set meanwhile */
        if (Py_TYPE(quick)->tp_dealloc == signature_dealloc) {
            if (launch((Signature *)quick, &called->handles, args, count, keywords) == DONE)
                result = Py_NewRef(Py_None);
        } else if (PyList_Check(quick)) {
            result = find_answer(quick, args, count + (keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords)), keywords);
        }
        Py_DECREF(quick);
        if (result != NULL || PyErr_Occurred()) return result;
    }
    PyObject *function = PyObject_GetAttr((PyObject *)Py_TYPE(self), shared.call);
    PyObject *method = function == NULL ? NULL : PyMethod_New(function, self);
    Py_XDECREF(function);
    if (method == NULL) return NULL;
    result = PyObject_Vectorcall(method, args, flags, keywords);
    Py_DECREF(method);
    return result;
}

/* The bases have no arguments for __new__ and no objects of varying size: make_called_class() refuses others. */
static PyObject *called_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords)) {
    PyObject *made = type->tp_alloc(type, 0);
    if (made != NULL) ((Called *)((char *)made + type->tp_vectorcall_offset))->vectorcall = called_vectorcall;
    return made;
}

static PyObject *make_called_class(PyObject *Py_UNUSED(module), PyObject *given) {
    PyTypeObject *base = (PyTypeObject *)given;
    if (!PyType_Check(given) || base->tp_itemsize != 0 || base->tp_vectorcall_offset != 0 || !(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "the base must be a class with a __call__ of its own");
        return NULL;
    }
    Py_ssize_t size = (base->tp_basicsize + (Py_ssize_t)_Alignof(Called) - 1) / (Py_ssize_t)_Alignof(Called) *
                      (Py_ssize_t)_Alignof(Called);
    PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, size + (Py_ssize_t)offsetof(Called, vectorcall), READONLY, NULL},
        /* Python's own functions for classes with __slots__ visit this one, and clear it before all else. */
        {"_quick", T_OBJECT_EX, size + (Py_ssize_t)offsetof(Called, quick), 0, NULL},
        {"_kernel", T_ULONGLONG, size + (Py_ssize_t)offsetof(Called, handles.kernel), 0, NULL},
        {"_function", T_ULONGLONG, size + (Py_ssize_t)offsetof(Called, handles.function), 0, NULL},
        {"_granted", T_LONG, size + (Py_ssize_t)offsetof(Called, handles.granted), 0, NULL},
        {"_fast", T_INT, size + (Py_ssize_t)offsetof(Called, handles.fast), 0, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    PyType_Slot slots[] = {
        {Py_tp_call, PyVectorcall_Call},
        {Py_tp_new, called_new},
        {Py_tp_members, members},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = "jitlto.launch._launch.Called",
        .basicsize = (int)(size + (Py_ssize_t)sizeof(Called)),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
        .slots = slots,
    };
    PyObject *made = PyType_FromSpecWithBases(&spec, given);
    PyObject *method = made == NULL ? NULL : PyObject_GetAttr(given, shared.call);
    /* In the place of the wrapper of tp_call, which stays: to set the attribute would make it Python's again. */
    if (method == NULL || PyDict_SetItem(((PyTypeObject *)made)->tp_dict, shared.call, method) < 0)
        Py_CLEAR(made);
    else
        PyType_Modified((PyTypeObject *)made);
    Py_XDECREF(method);
    return made;
}
