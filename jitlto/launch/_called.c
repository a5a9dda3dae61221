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
    if (called->method == NULL) return no_longer_in_use(); /* cleared with a cycle that it was in */
    PyObject *method = PyMethod_New(called->method, self);
    if (method == NULL) return NULL;
    result = PyObject_Vectorcall(method, args, flags, keywords);
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
    if (method == NULL || PyDict_SetItemString(((PyTypeObject *)made)->tp_dict, "__call__", method) < 0)
        Py_CLEAR(made);
    else
        PyType_Modified((PyTypeObject *)made);
    Py_XDECREF(method);
    return made;
}
