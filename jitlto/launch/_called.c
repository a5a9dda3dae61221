/* Classes whose objects are called as fast as methods; a part of _launch.c.
 *
 * CPython calls an object with a method __call__ by way of a tuple and a dict of the arguments. The objects of the classes
 * made here pass the arguments on to the method as they come, in an array. They have two pointers behind what the objects
 * of the class above have.
 */

typedef struct {
    vectorcallfunc vectorcall;
    PyObject *method; /* what is called with the object and the arguments */
} Called;

static PyObject *called_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    PyObject *method = ((Called *)((char *)self + Py_TYPE(self)->tp_vectorcall_offset))->method;
    if (method == NULL) return no_longer_in_use(); /* cleared with a cycle that it was in */
    Py_INCREF(method); /* another one may be set meanwhile */
    PyObject *result = Py_TYPE(method)->tp_dealloc == call_dealloc
                           ? call_launcher((Call *)method, self, args, flags, keywords)
                           : call_with(method, self, args, flags, keywords);
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
    *(Called *)((char *)made + type->tp_vectorcall_offset) = (Called){called_vectorcall, method};
    return made;
}

/* In the place of the wrapper of tp_call, which stays: to set the attribute would make it Python's again. */
static int set_called_method(PyTypeObject *type, PyObject *method) {
    if (type->tp_new != called_new) {
        PyErr_SetString(PyExc_TypeError, "the class must be of make_called_class()");
        return -1;
    }
    if (PyDict_SetItemString(type->tp_dict, "__call__", method) < 0) return -1;
    PyType_Modified(type);
    return 0;
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

static PyObject *new_called_class(PyTypeObject *base, PyObject *method) {
    if (base->tp_itemsize != 0 || base->tp_vectorcall_offset != 0 || !(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "the base must be a class with a __call__ of its own");
        return NULL;
    }
    Py_ssize_t size = (base->tp_basicsize + (Py_ssize_t)_Alignof(Called) - 1) / (Py_ssize_t)_Alignof(Called) *
                      (Py_ssize_t)_Alignof(Called);
    PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, size + (Py_ssize_t)offsetof(Called, vectorcall), READONLY, NULL},
        /* Python's own functions for classes with __slots__ clear and visit it. */
        {"_called_method", T_OBJECT_EX, size + (Py_ssize_t)offsetof(Called, method), 0, NULL},
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
    if (made == NULL) return NULL;
    if (copy_names((PyObject *)base, made) < 0 || set_called_method((PyTypeObject *)made, method) < 0) Py_CLEAR(made);
    return made;
}
