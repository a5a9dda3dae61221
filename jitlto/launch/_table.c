/* What was asked for before; a part of _launch.c.
 *
 * A Table holds answers by the arguments of the call that asked. Arguments are the same as those of an entry if they are the
 * same objects, or numbers or texts of the same type and value: 1, 1.0 and True are three arguments. A Lookup is a method: it
 * asks the Table that its object has in the attribute `_quick`, then the method of Python that it stands before.
 */

enum { FEWEST_PLACES = 16, MOST_PLACES = 1 << 16 }; /* powers of two */

typedef struct {
    PyObject *values; /* a tuple, NULL: no entry */
    PyObject *names;  /* a tuple: the keywords of the last of them */
    PyObject *found;
} Entry;

typedef struct { /* with open addressing: at least half of the places are free */
    size_t size, count;
    Entry *places;
} Entries;

typedef struct {
    PyObject_HEAD
    Entries entries;
    unsigned generation;
} Table;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *method;
    PyObject *dict; /* what else is known of the method */
} Lookup;

static int has_value(PyObject *object) { return PyUnicode_CheckExact(object) || PyLong_CheckExact(object); }

static size_t hash_request(PyObject *const *values, Py_ssize_t count, PyObject *names) {
    size_t hash = names == NULL ? 0 : (size_t)PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t part = has_value(values[i]) ? (size_t)PyObject_Hash(values[i]) : (size_t)(uintptr_t)values[i] >> 4;
        hash = (hash ^ part) * (size_t)0x9E3779B97F4A7C15u;
    }
    return hash >> 32;
}

static int is_same(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    /* Of two texts or two numbers: no code of a class runs. */
    return has_value(a) && Py_TYPE(a) == Py_TYPE(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

static int is_entry(Entry *entry, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    if (entry->values == NULL || PyTuple_GET_SIZE(entry->values) != count) return 0;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (PyTuple_GET_SIZE(entry->names) != named) return 0;
    for (Py_ssize_t i = 0; i < named; i++) /* both interned, by the compiler */
        if (PyTuple_GET_ITEM(entry->names, i) != PyTuple_GET_ITEM(names, i)) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_same(PyTuple_GET_ITEM(entry->values, i), values[i])) return 0;
    return 1;
}

/* The entry of a request, or the free place where it belongs. */
static Entry *find_entry(Entries *entries, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    for (size_t place = hash_request(values, count, names);; place++) {
        Entry *entry = &entries->places[place % entries->size];
        if (entry->values == NULL || is_entry(entry, values, count, names)) return entry;
    }
}

static Entry *find_place(Entries *entries, Entry *entry) {
    PyObject *values = entry->values;
    return find_entry(entries, &PyTuple_GET_ITEM(values, 0), PyTuple_GET_SIZE(values), entry->names);
}

static PyObject *table_find(Table *table, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    PyObject *found = NULL;
    if (table->generation != atomic_load_explicit(&generation, memory_order_relaxed)) return NULL;
    Py_BEGIN_CRITICAL_SECTION(table);
    if (table->entries.count != 0) found = Py_XNewRef(find_entry(&table->entries, values, count, names)->found);
    Py_END_CRITICAL_SECTION();
    return found;
}

static void drop_entry(Entry *entry) {
    Py_XDECREF(entry->values);
    Py_XDECREF(entry->names);
    Py_XDECREF(entry->found);
}

static void drop_entries(Entries *entries) {
    for (size_t i = 0; i < entries->size; i++) drop_entry(&entries->places[i]);
    PyMem_Free(entries->places);
}

static int grow(Entries *entries) {
    Entries grown = {.size = entries->size == 0 ? FEWEST_PLACES : 2 * entries->size, .count = entries->count};
    grown.places = PyMem_Calloc(grown.size, sizeof *grown.places);
    if (grown.places == NULL) return -1;
    for (size_t i = 0; i < entries->size; i++)
        if (entries->places[i].values != NULL) *find_place(&grown, &entries->places[i]) = entries->places[i];
    PyMem_Free(entries->places);
    *entries = grown;
    return 0;
}

/* Exchanges an entry for the one that it replaces. A full table forgets all; `dropped` takes that. */
static int exchange_entry(Entries *entries, Entry *entry, Entries *dropped) {
    if (2 * (entries->count + 1) > entries->size) {
        if (entries->size == MOST_PLACES) {
            *dropped = *entries;
            *entries = (Entries){.size = 0};
        }
        if (grow(entries) < 0) return -1;
    }
    Entry *place = find_place(entries, entry), before = *place;
    *place = *entry;
    *entry = before;
    if (before.values == NULL) entries->count++;
    return 0;
}

static PyObject *table_remember(PyObject *self, PyObject *args) {
    Entry entry;
    if (!PyArg_ParseTuple(args, "O!O!O:remember", &PyTuple_Type, &entry.values, &PyTuple_Type, &entry.names, &entry.found))
        return NULL;
    Py_INCREF(entry.values);
    Py_INCREF(entry.names);
    Py_INCREF(entry.found);
    Entries dropped = {.size = 0};
    int status;
    Py_BEGIN_CRITICAL_SECTION(self);
    status = exchange_entry(&((Table *)self)->entries, &entry, &dropped);
    Py_END_CRITICAL_SECTION();
    drop_entry(&entry); /* here, because destructors run */
    drop_entries(&dropped);
    return status < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static PyObject *table_find_python(PyObject *self, PyObject *args) {
    PyObject *values, *names;
    if (!PyArg_ParseTuple(args, "O!O!:find", &PyTuple_Type, &values, &PyTuple_Type, &names)) return NULL;
    PyObject *found = table_find((Table *)self, &PyTuple_GET_ITEM(values, 0), PyTuple_GET_SIZE(values), names);
    return found != NULL ? found : Py_NewRef(Py_None);
}

/* Removes all entries. */
static PyObject *table_forget(PyObject *self, PyObject *Py_UNUSED(none)) {
    Entries dropped;
    Py_BEGIN_CRITICAL_SECTION(self);
    dropped = ((Table *)self)->entries;
    ((Table *)self)->entries = (Entries){.size = 0};
    Py_END_CRITICAL_SECTION();
    drop_entries(&dropped);
    Py_RETURN_NONE;
}

static int table_traverse(PyObject *self, visitproc visit, void *arg) {
    Entries *entries = &((Table *)self)->entries;
    Py_VISIT(Py_TYPE(self));
    for (size_t i = 0; i < entries->size; i++) {
        Py_VISIT(entries->places[i].values);
        Py_VISIT(entries->places[i].names);
        Py_VISIT(entries->places[i].found);
    }
    return 0;
}

static int table_clear(PyObject *self) {
    Py_XDECREF(table_forget(self, NULL));
    return 0;
}

static void table_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    table_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"remember", table_remember, METH_VARARGS,
     "remember(values, names, found): an answer, by its arguments and the names of the last of them."},
    {"find", table_find_python, METH_VARARGS, "find(values, names): the answer; None if there is none."},
    {"forget", table_forget, METH_NOARGS, "forget(): remove all entries."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "Requests and their answers."},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_traverse, table_traverse},
    {Py_tp_clear, table_clear},
    {Py_tp_methods, table_methods},
    {0, NULL},
};

static PyType_Spec table_spec = {
    .name = "jitlto.launch._launch.Table",
    .basicsize = sizeof(Table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = table_slots,
};

static PyObject *lookup_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords) {
    Lookup *lookup = (Lookup *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (lookup->method == NULL) return no_longer_in_use();
    if (count == 0) return PyObject_Vectorcall(lookup->method, args, flags, keywords); /* which says what it takes */
    PyObject *table = PyObject_GetAttr(args[0], shared.quick), *found = NULL;
    if (table == NULL) return NULL;
    Py_INCREF(self); /* the method may be replaced meanwhile */
    if (Py_TYPE(table) == shared.table_type) {
        Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
        found = table_find((Table *)table, args + 1, count - 1 + named, keywords);
    }
    if (found == NULL) found = PyObject_Vectorcall(lookup->method, args, flags, keywords);
    Py_DECREF(self);
    Py_DECREF(table);
    return found;
}

static PyObject *lookup_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type)) {
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static int lookup_traverse(PyObject *self, visitproc visit, void *arg) {
    Lookup *lookup = (Lookup *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(lookup->method);
    Py_VISIT(lookup->dict);
    return 0;
}

static int lookup_clear(PyObject *self) {
    Lookup *lookup = (Lookup *)self;
    Py_CLEAR(lookup->method);
    Py_CLEAR(lookup->dict);
    return 0;
}

static void lookup_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    lookup_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef lookup_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Lookup, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Lookup, dict), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef lookup_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot lookup_slots[] = {
    {Py_tp_doc, "A method that gives the same answer to the same arguments."},
    {Py_tp_dealloc, lookup_dealloc},
    {Py_tp_traverse, lookup_traverse},
    {Py_tp_clear, lookup_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, lookup_get},
    {Py_tp_members, lookup_members},
    {Py_tp_getset, lookup_getset},
    {0, NULL},
};

static PyType_Spec lookup_spec = {
    .name = "jitlto.launch._launch.Lookup",
    .basicsize = sizeof(Lookup),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lookup_slots,
};

static PyObject *new_table(void) {
    Table *table = PyObject_GC_New(Table, shared.table_type);
    if (table == NULL) return NULL;
    table->entries = (Entries){.size = 0};
    table->generation = atomic_load(&generation);
    PyObject_GC_Track(table);
    return (PyObject *)table;
}

static PyObject *new_lookup(PyObject *method) {
    Lookup *lookup = PyObject_GC_New(Lookup, shared.lookup_type);
    if (lookup == NULL) return NULL;
    lookup->vectorcall = lookup_vectorcall;
    lookup->method = Py_NewRef(method);
    lookup->dict = NULL;
    PyObject_GC_Track(lookup);
    return (PyObject *)lookup;
}
