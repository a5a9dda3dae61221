/* Classes whose objects are called as fast as methods; a part of _launch.c.
 *
 * CPython calls an object with a method __call__ by way of a tuple and a dict of the arguments. The objects of the classes
 * made here pass the arguments on as they come, in an array: first to what is in the attribute `_quick`, a Signature (of a
 * launcher) or a Table, then to the method.
 */

typedef struct { /* behind what the objects of the class above have */
    vectorcallfunc vectorcall;
    PyObject *method; /* __call__ */
    PyObject *quick;
    Handles handles;
} Called;

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

static PyObject *called_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    Called *called = (Called *)((char *)self + Py_TYPE(self)->tp_vectorcall_offset);
    PyObject *quick = called->quick, *result = NULL;
    if (quick != NULL) {
        Py_ssize_t count = PyVectorcall_NARGS(flags);
        int done = OTHERWISE;
        Py_INCREF(quick); /* another one may be set meanwhile */
        if (Py_TYPE(quick)->tp_dealloc == signature_dealloc) {
            done = launch((Signature *)quick, &called->handles, args, count, keywords);
            if (done == DONE) result = Py_NewRef(Py_None);
        } else if (Py_TYPE(quick)->tp_dealloc == table_dealloc) {
            count += keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
            result = table_find((Table *)quick, args, count, keywords);
        }
        Py_DECREF(quick);
        if (result != NULL || done == FAILED) return result;
    }
    PyObject *method = called->method;
    if (method == NULL) return no_longer_in_use(); /* cleared with a cycle that it was in */
    Py_INCREF(method);
    result = call_with(method, self, args, flags, keywords);
    Py_DECREF(method);
    return result;
}

/* The bases have no arguments for __new__ and no objects of varying size: new_called_class() refuses others. */
static PyObject *called_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords)) {
    PyObject *method = PyObject_GetAttrString((PyObject *)type, "__call__");
    if (method == NULL) return NULL;
    PyObject *made = type->tp_alloc(type, 0);
    if (made == NULL) {
        Py_DECREF(method);
        return NULL;
    }
    Called *called = (Called *)((char *)made + type->tp_vectorcall_offset);
    called->vectorcall = called_vectorcall;
    called->method = method;
    return made;
}

/* The base's name, module and docstring, so that nobody sees a difference. */
static int copy_names(PyObject *base, PyObject *made) {
    static const char *const names[] = {"__name__", "__qualname__", "__module__", "__doc__"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        PyObject *value = PyObject_GetAttrString(base, names[i]);
        int status = value == NULL ? -1 : PyObject_SetAttrString(made, names[i], value);
        Py_XDECREF(value);
        if (status < 0) return -1;
    }
    return 0;
}

static PyObject *new_called_class(PyTypeObject *base) {
    if (base->tp_itemsize != 0 || base->tp_vectorcall_offset != 0 || !(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "the base must be a class with a __call__ of its own");
        return NULL;
    }
    Py_ssize_t size = (base->tp_basicsize + (Py_ssize_t)_Alignof(Called) - 1) / (Py_ssize_t)_Alignof(Called) *
                      (Py_ssize_t)_Alignof(Called);
    PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, size + (Py_ssize_t)offsetof(Called, vectorcall), READONLY, NULL},
        /* Python's own functions for classes with __slots__ visit these two, and clear them before all else. */
        {"_quick", T_OBJECT_EX, size + (Py_ssize_t)offsetof(Called, quick), 0, NULL},
        {"_called_method", T_OBJECT_EX, size + (Py_ssize_t)offsetof(Called, method), 0, NULL},
        {"_kernel", T_ULONGLONG, size + (Py_ssize_t)offsetof(Called, handles.kernel), 0, NULL},
        {"_function", T_ULONGLONG, size + (Py_ssize_t)offsetof(Called, handles.function), 0, NULL},
        {"_granted", T_LONG, size + (Py_ssize_t)offsetof(Called, handles.granted), 0, NULL},
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
    PyObject *made = PyType_FromSpecWithBases(&spec, (PyObject *)base);
    PyObject *method = made == NULL ? NULL : PyObject_GetAttrString((PyObject *)base, "__call__");
    /* In the place of the wrapper of tp_call, which stays: to set the attribute would make it Python's again. */
    if (method == NULL || copy_names((PyObject *)base, made) < 0 ||
        PyDict_SetItemString(((PyTypeObject *)made)->tp_dict, "__call__", method) < 0)
        Py_CLEAR(made);
    else
        PyType_Modified((PyTypeObject *)made);
    Py_XDECREF(method);
    return made;
}
