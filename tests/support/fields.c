/* Arrays whose attributes are fields of C structures, as CuPy's are: Array(dtype, address, contiguous=True). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    PyObject_HEAD
    uintptr_t ptr;
} Memory;

typedef struct {
    PyObject_HEAD
    int contiguous;
    PyObject *dtype, *data;
} Array;

static atomic_long reads; /* of attributes that are pointers */

static PyObject *memory_ptr(PyObject *self, void *Py_UNUSED(closure)) {
    atomic_fetch_add(&reads, 1);
    return PyLong_FromUnsignedLongLong(((Memory *)self)->ptr);
}

static PyObject *array_contiguous(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((Array *)self)->contiguous);
}

static PyObject *array_dtype(PyObject *self, void *Py_UNUSED(closure)) {
    atomic_fetch_add(&reads, 1);
    return Py_NewRef(((Array *)self)->dtype);
}

static PyObject *array_data(PyObject *self, void *Py_UNUSED(closure)) {
    atomic_fetch_add(&reads, 1);
    return Py_NewRef(((Array *)self)->data);
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static void array_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Array *)self)->dtype);
    Py_XDECREF(((Array *)self)->data);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef memory_getset[] = {{"ptr", memory_ptr, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyGetSetDef array_getset[] = {
    {"_c_contiguous", array_contiguous, NULL, NULL, NULL},
    {"dtype", array_dtype, NULL, NULL, NULL},
    {"data", array_data, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot memory_slots[] = {{Py_tp_dealloc, memory_dealloc}, {Py_tp_getset, memory_getset}, {0, NULL}};

static PyType_Spec memory_spec = {"fields.Memory", sizeof(Memory), 0, Py_TPFLAGS_DEFAULT, memory_slots};

static PyTypeObject *memory_type;

static PyObject *array_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"dtype", "address", "contiguous", NULL};
    PyObject *dtype;
    unsigned long long address;
    int contiguous = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OK|p", names, &dtype, &address, &contiguous)) return NULL;
    Array *made = (Array *)type->tp_alloc(type, 0);
    if (made == NULL) return NULL;
    made->contiguous = contiguous;
    made->dtype = Py_NewRef(dtype);
    made->data = memory_type->tp_alloc(memory_type, 0);
    if (made->data == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    ((Memory *)made->data)->ptr = (uintptr_t)address;
    return (PyObject *)made;
}

static PyType_Slot array_slots[] = {
    {Py_tp_new, array_new}, {Py_tp_dealloc, array_dealloc}, {Py_tp_getset, array_getset}, {0, NULL},
};

static PyType_Spec array_spec = {
    "fields.Array", sizeof(Array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, array_slots,
};

static PyObject *count_reads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    return PyLong_FromLong(atomic_load(&reads));
}

static PyMethodDef functions[] = {
    {"reads", count_reads, METH_NOARGS, "How often an attribute that is a pointer was read by its getter."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "fields", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_fields(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    memory_type = (PyTypeObject *)PyType_FromSpec(&memory_spec);
    PyObject *array_type = memory_type == NULL ? NULL : PyType_FromSpec(&array_spec);
    if (array_type == NULL || PyModule_AddObject(module, "Array", array_type) < 0) return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
