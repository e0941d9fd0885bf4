/* libdlc for C++17, header only: wraps the declarations of <dlc/dlc.h>, <dlc/files.h> and <dlc/ops.h> in RAII owners, values with
 * operators, and one error policy. Conventions, shapes, threads and lifetimes are those of the C headers.
 *
 *   dlc::context context = dlc::context::create();
 *   dlc::graph g = dlc::graph::create(context);
 *   dlc::value x = g.input("x", DLC_F32, {"rows", 3});
 *   g.output("y", dlc::relu(dlc::linear(x, w, b)) * 2);
 *   dlc::program p = dlc::program::compile(context, g);
 *   std::vector<dlc::tensor> y = p.run({dlc::view(data, {2, 3})});
 *
 * Errors      A call that fails throws dlc::error, with the status and the library's message. Its twin try_... returns a
 *             dlc::result, which holds either the result or status and message; without exceptions only the twins
 *             exist. Calls that build values do not fail: a mistake is recorded in the graph and propagates, and the next
 *             call with a status reports it (output, check, compile).
 * Ownership   context, graph, program, call, event, file and tensor own their C object: moved, never copied; empty after a move. value,
 *             view and graph_ref own nothing. get() returns the C object, for functions that this header lacks.
 * Lists       dlc::list<T> takes {1, 2}, std::vector, std::array or (pointer, count), and is read before the call returns.
 * Operators   <dlc/ops.hpp>, generated: dlc::softmax(x, axis), options as a struct with defaults as last parameter. */
#ifndef DLC_DLC_HPP
#define DLC_DLC_HPP

#include <dlc/dlc.h>
#include <dlc/files.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define DLC_EXCEPTIONS 1
#include <stdexcept>
#else
#define DLC_EXCEPTIONS 0
#endif

namespace dlc {

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

#if DLC_EXCEPTIONS
class error : public std::runtime_error {
  public:
    error(dlc_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    dlc_status status() const noexcept { return status_; }

  private:
    dlc_status status_;
};
#endif

/* The result of a try_ call: a T, or a status other than DLC_OK and a message. */
template <typename T> class result {
  public:
    result(T &&value) : status_(DLC_OK), value_(std::move(value)) {}
    result(dlc_status status, std::string message) : status_(status), message_(std::move(message)) {}
    explicit operator bool() const noexcept { return status_ == DLC_OK; }
    dlc_status status() const noexcept { return status_; }
    const std::string &message() const noexcept { return message_; }
    /* Only if the result is true. */
    T &operator*() noexcept { return *value_; }
    T *operator->() noexcept { return &*value_; }
    const T &operator*() const noexcept { return *value_; }
    const T *operator->() const noexcept { return &*value_; }
#if DLC_EXCEPTIONS
    /* The T; throws dlc::error if there is none. */
    T take() && {
        if (status_ != DLC_OK) throw error(status_, message_);
        return std::move(*value_);
    }
#endif

  private:
    dlc_status status_;
    std::string message_;
    std::optional<T> value_;
};

template <> class result<void> {
  public:
    result() : status_(DLC_OK) {}
    result(dlc_status status, std::string message) : status_(status), message_(std::move(message)) {}
    explicit operator bool() const noexcept { return status_ == DLC_OK; }
    dlc_status status() const noexcept { return status_; }
    const std::string &message() const noexcept { return message_; }
#if DLC_EXCEPTIONS
    void take() && {
        if (status_ != DLC_OK) throw error(status_, message_);
    }
#endif

  private:
    dlc_status status_;
    std::string message_;
};

namespace detail {

inline result<void> checked(dlc_status status, const dlc_context *context) {
    return status == DLC_OK ? result<void>() : result<void>(status, dlc_error_message(context));
}

/* The context whose messages an object's calls leave; none after a move, as calls without an object leave theirs. */
class message_context {
  public:
    message_context(dlc_context *context = nullptr) noexcept : context_(context) {}
    message_context(message_context &&other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
    message_context &operator=(message_context &&other) noexcept {
        context_ = std::exchange(other.context_, nullptr);
        return *this;
    }
    operator dlc_context *() const noexcept { return context_; }

  private:
    dlc_context *context_;
};

/* Move-only owner of a C object. */
template <typename T, void (*destroy)(T *)> class owner {
  public:
    owner() = default;
    explicit owner(T *object) : object_(object) {}
    owner(owner &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) reset(std::exchange(other.object_, nullptr));
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { reset(nullptr); }
    T *get() const noexcept { return object_; }
    T *release() noexcept { return std::exchange(object_, nullptr); }
    explicit operator bool() const noexcept { return object_ != nullptr; }

  private:
    void reset(T *object) {
        if (object_) destroy(object_);
        object_ = object;
    }
    T *object_ = nullptr;
};

} // namespace detail

/* ---- lists, dimensions, element types ------------------------------------------------------------------------------------- */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime" /* a list is a parameter: it lives as long as the call */
#endif
template <typename T> class list {
  public:
    list() = default;
    list(std::initializer_list<T> items) : data_(items.begin()), size_(items.size()) {}
    list(const std::vector<T> &items) : data_(items.data()), size_(items.size()) {}
    template <std::size_t n> list(const std::array<T, n> &items) : data_(items.data()), size_(n) {}
    list(const T *items, std::size_t count) : data_(items), size_(count) {}
    const T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    int count() const noexcept { return static_cast<int>(size_); }
    const T *begin() const noexcept { return data_; }
    const T *end() const noexcept { return data_ + size_; }
    const T &operator[](std::size_t i) const { return data_[i]; }

  private:
    const T *data_ = nullptr;
    std::size_t size_ = 0;
};
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

/* A number, or a symbol's name, which must live as long as the call. */
struct dim : dlc_dim {
    template <typename N, typename = std::enable_if_t<std::is_integral_v<N>>>
    dim(N number) : dlc_dim{static_cast<std::int64_t>(number), nullptr} {}
    dim(const char *symbol) : dlc_dim{0, symbol} {}
    dim(const dlc_dim &other) : dlc_dim(other) {}
};
static_assert(sizeof(dim) == sizeof(dlc_dim), "arrays of one are arrays of the other");

template <typename T> struct dtype_of;
#define DLC_DTYPE_OF(type, dtype) \
    template <> struct dtype_of<type> : std::integral_constant<dlc_dtype, dtype> {};
DLC_DTYPE_OF(bool, DLC_BOOL)
DLC_DTYPE_OF(std::int8_t, DLC_I8)
DLC_DTYPE_OF(std::int16_t, DLC_I16)
DLC_DTYPE_OF(std::int32_t, DLC_I32)
DLC_DTYPE_OF(std::int64_t, DLC_I64)
DLC_DTYPE_OF(std::uint8_t, DLC_U8)
DLC_DTYPE_OF(std::uint16_t, DLC_U16)
DLC_DTYPE_OF(std::uint32_t, DLC_U32)
DLC_DTYPE_OF(std::uint64_t, DLC_U64)
DLC_DTYPE_OF(float, DLC_F32)
DLC_DTYPE_OF(double, DLC_F64)
#undef DLC_DTYPE_OF

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

/* A value of a graph; without a graph: an operand that is left out. */
struct value : dlc_value {
    value() : dlc_value{nullptr, 0, 0} {}
    value(dlc_value raw) : dlc_value(raw) {}
    bool ok() const { return dlc_value_ok(*this); }
    dlc_dtype dtype() const { return dlc_value_dtype(*this); }
    int rank() const { return dlc_value_rank(*this); }
    dim size(int axis) const { return dlc_value_dim(*this, axis); }
    /* Names the value for people: profiles, plans, messages, taps. */
    value named(const char *name) const { return dlc_name(*this, name); }
    /* A rank-0 constant of this value's element type. */
    value like(double number) const { return dlc_scalar(graph, dtype(), number); }
};
static_assert(sizeof(value) == sizeof(dlc_value), "arrays of one are arrays of the other");

#define DLC_BINARY(operator_, function)                      \
    inline value operator_(const value &a, const value &b) { \
        return function(a, b);                               \
    }                                                        \
    inline value operator_(const value &a, double b) {       \
        return function(a, a.like(b));                       \
    }                                                        \
    inline value operator_(double a, const value &b) {       \
        return function(b.like(a), b);                       \
    }
DLC_BINARY(operator+, dlc_add)
DLC_BINARY(operator-, dlc_sub)
DLC_BINARY(operator*, dlc_mul)
DLC_BINARY(operator/, dlc_div)
DLC_BINARY(operator<, dlc_lt)
DLC_BINARY(operator<=, dlc_le)
DLC_BINARY(operator>, dlc_gt)
DLC_BINARY(operator>=, dlc_ge)
#undef DLC_BINARY
inline value operator-(const value &x) {
    return dlc_neg(x);
}
inline value &operator+=(value &a, const value &b) {
    return a = a + b;
}
inline value &operator-=(value &a, const value &b) {
    return a = a - b;
}
inline value &operator*=(value &a, const value &b) {
    return a = a * b;
}
inline value &operator/=(value &a, const value &b) {
    return a = a / b;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

/* The host's elements in place, compact and row-major unless strides are given. Those that are const cannot be outputs. */
class view {
  public:
    template <typename T>
    view(T *first, list<std::int64_t> shape, list<std::int64_t> strides = {})
        : view(first, dtype_of<std::remove_cv_t<T>>::value, shape, strides) {}
    /* Of any element type. */
    template <typename T>
    view(T *first, dlc_dtype dtype, list<std::int64_t> shape, list<std::int64_t> strides = {})
        : view(static_cast<const void *>(first), dtype, shape, strides) {
        writable_ = !std::is_const_v<T>;
    }
    view(const void *first, dlc_dtype dtype, list<std::int64_t> shape, list<std::int64_t> strides = {}) {
        const int rank = shape.count() <= DLC_MAX_RANK ? shape.count() : DLC_MAX_RANK + 1; /* refused by the library */
        for (std::size_t d = 0; d < shape.size() && d < DLC_MAX_RANK; d++) shape_[d] = shape[d];
        for (std::size_t d = 0; d < strides.size() && d < DLC_MAX_RANK; d++) strides_[d] = strides[d];
        tensor_.data = const_cast<void *>(first);
        tensor_.device = {kDLCPU, 0};
        tensor_.ndim = rank;
        tensor_.dtype = dlpack(dtype);
        strided_ = strides.size() != 0;
        aim();
    }
    view(const DLTensor &other, bool writable = true) : tensor_(other), foreign_(true), writable_(writable) {}
    view(const view &other) { *this = other; }
    view &operator=(const view &other) {
        tensor_ = other.tensor_, shape_ = other.shape_, strides_ = other.strides_;
        strided_ = other.strided_, foreign_ = other.foreign_, writable_ = other.writable_;
        aim();
        return *this;
    }
    const DLTensor *get() const noexcept { return &tensor_; }
    DLTensor *get() noexcept { return &tensor_; }
    bool writable() const noexcept { return writable_; }

    static DLDataType dlpack(dlc_dtype dtype) {
        static constexpr DLDataType types[] = {
#define X(code, text, bits, dlpack, class_, usable) {dlpack, bits, 1},
            DLC_DTYPE_TABLE(X)
#undef X
        };
        return types[dtype];
    }

  private:
    void aim() {
        if (foreign_) return;
        tensor_.shape = shape_.data();
        tensor_.strides = strided_ ? strides_.data() : nullptr;
    }
    DLTensor tensor_ = {};
    std::array<std::int64_t, DLC_MAX_RANK> shape_ = {}, strides_ = {};
    bool strided_ = false, foreign_ = false; /* foreign: shape and strides belong to another object */
    bool writable_ = false;
};

namespace detail {
inline std::vector<const DLTensor *> pointers(list<view> views) {
    std::vector<const DLTensor *> all;
    for (const view &one : views) all.push_back(one.get());
    return all;
}
/* False: an output is const; said then tells which. */
inline bool writable_pointers(list<view> outputs, std::vector<DLTensor *> &all, std::string &said) {
    for (const view &one : outputs) {
        if (!one.writable()) said = "output " + std::to_string(all.size()) + " is a view of constant elements";
        if (!one.writable()) return false;
        all.push_back(const_cast<DLTensor *>(one.get()));
    }
    return true;
}
inline void release_tensor(DLManagedTensorVersioned *tensor) {
    tensor->deleter(tensor);
}
} // namespace detail

/* A tensor that the library made. */
class tensor : public detail::owner<DLManagedTensorVersioned, detail::release_tensor> {
  public:
    using owner::owner;
    const DLTensor &dl() const { return get()->dl_tensor; }
    list<std::int64_t> shape() const { return {dl().shape, static_cast<std::size_t>(dl().ndim)}; }
    std::size_t size() const {
        std::size_t count = 1;
        for (std::int64_t n : shape()) count *= static_cast<std::size_t>(n);
        return count;
    }
    template <typename T> bool holds() const {
        const DLDataType wanted = view::dlpack(dtype_of<T>::value), is = dl().dtype;
        return is.code == wanted.code && is.bits == wanted.bits && is.lanes == 1;
    }
    /* Compact and row-major? Tensors of files in Fortran order, and those that eager graphs borrow, may be neither. */
    bool is_compact() const {
        std::int64_t stride = 1;
        for (std::int64_t n : shape())
            if (n == 0) return true;
        for (int d = dl().ndim; dl().strides && d-- > 0; stride *= dl().shape[d])
            if (dl().shape[d] != 1 && dl().strides[d] != stride) return false;
        return true;
    }
    /* The elements, compact and row-major; null if they are of another type or have other strides. */
    template <typename T> const T *data() const {
        if (!holds<T>() || !is_compact()) return nullptr;
        return reinterpret_cast<const T *>(static_cast<const char *>(dl().data) + dl().byte_offset);
    }
    template <typename T> list<T> elements() const { return {data<T>(), data<T>() ? size() : 0}; }
    operator view() const { return view(dl(), !(get()->flags & DLPACK_FLAG_BITMASK_READ_ONLY)); }
};

/* ---- contexts --------------------------------------------------------------------------------------------------------------- */

#if DLC_EXCEPTIONS
#define DLC_TWIN(declaration, call) \
    declaration {                   \
        return call.take();         \
    }
#else
#define DLC_TWIN(declaration, call)
#endif

inline dlc_context_options context_options() {
    return DLC_CONTEXT_OPTIONS_INIT;
}
inline dlc_compile_options compile_options() {
    return DLC_COMPILE_OPTIONS_INIT;
}
inline dlc_run_options run_options() {
    return DLC_RUN_OPTIONS_INIT;
}

class context : public detail::owner<dlc_context, dlc_context_destroy> {
  public:
    using owner::owner;
    static result<context> try_create(const dlc_context_options &options = context_options()) {
        dlc_context *made = nullptr;
        const dlc_status status = dlc_context_create(&options, &made);
        if (status != DLC_OK) return {status, dlc_error_message(nullptr)};
        return context(made);
    }
    DLC_TWIN(static context create(const dlc_context_options &options = context_options()), try_create(options))
    static result<context> try_create(const char *target) {
        dlc_context_options options = context_options();
        options.target = target;
        return try_create(options);
    }
    DLC_TWIN(static context create(const char *target), try_create(target))
    dlc_statistics statistics() const {
        dlc_statistics now = DLC_STATISTICS_INIT;
        dlc_context_statistics(get(), &now);
        return now;
    }
};

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

class file : public detail::owner<dlc_file, dlc_file_destroy> {
  public:
    file() = default;
    static result<file> try_open(const context &context, const char *path) {
        dlc_file *made = nullptr;
        const dlc_status status = dlc_file_open(context.get(), path, nullptr, &made);
        if (status != DLC_OK) return {status, dlc_error_message(context.get())};
        return file(made, context.get());
    }
    DLC_TWIN(static file open(const context &context, const char *path), try_open(context, path))
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (int i = 0; i < dlc_file_count(get()); i++) all.emplace_back(dlc_file_name(get(), i));
        return all;
    }
    result<tensor> try_read(const char *name) const {
        DLManagedTensorVersioned *made = nullptr;
        const dlc_status status = dlc_file_tensor(get(), name, &made);
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        return tensor(made);
    }
    DLC_TWIN(tensor read(const char *name) const, try_read(name))

  private:
    file(dlc_file *made, dlc_context *context) : owner(made), context_(context) {}
    detail::message_context context_;
};

/* ---- graphs ----------------------------------------------------------------------------------------------------------------- */

/* A graph, or a sub-graph of one, that another object owns. */
class graph_ref {
  public:
    graph_ref() = default;
    graph_ref(dlc_graph *graph) : graph_(graph) {}
    dlc_graph *get() const noexcept { return graph_; }
    operator dlc_graph *() const noexcept { return graph_; }

    value input(const char *name, dlc_dtype dtype, list<dim> dims) const {
        return dlc_input(graph_, name, dtype, dims.count(), dims.data());
    }
    /* Elements are copied; as many as the product of shape. */
    template <typename T> value constant(list<std::int64_t> shape, const T *elements) const {
        return dlc_constant(graph_, dtype_of<T>::value, shape.count(), shape.data(), elements);
    }
    template <typename T> value constant(list<std::int64_t> shape, const std::vector<T> &elements) const {
        return constant(shape, elements.data());
    }
    /* Not copied: they must stay in place and unchanged as long as the graph and its programs. */
    template <typename T> value borrow(list<std::int64_t> shape, const T *elements) const {
        return dlc_constant_borrow(graph_, dtype_of<T>::value, shape.count(), shape.data(), elements);
    }
    value constant(const file &weights, const char *name) const {
        return dlc_file_constant(graph_, weights.get(), name);
    }
    value scalar(dlc_dtype dtype, double number) const { return dlc_scalar(graph_, dtype, number); }
    graph_ref subgraph() const { return dlc_subgraph(graph_); }

    result<void> try_output(const char *name, const value &y) const { return checked(dlc_output(graph_, name, y)); }
    DLC_TWIN(void output(const char *name, const value &y) const, try_output(name, y))
    /* The first mistake of the calls that built the graph. */
    result<void> try_check() const { return checked(dlc_graph_status(graph_)); }
    DLC_TWIN(void check() const, try_check())

  protected:
    void set(dlc_graph *graph) { graph_ = graph; }

  private:
    result<void> checked(dlc_status status) const {
        return status == DLC_OK ? result<void>() : result<void>(status, dlc_graph_message(graph_));
    }
    dlc_graph *graph_ = nullptr;
};

class graph : public detail::owner<dlc_graph, dlc_graph_destroy>, public graph_ref {
  public:
    graph() = default;
    graph(graph &&other) noexcept
        : owner(std::move(other)), graph_ref(owner::get()), context_(std::move(other.context_)) {
        other.set(nullptr);
    }
    graph &operator=(graph &&other) noexcept {
        other.set(nullptr);
        owner::operator=(std::move(other));
        set(owner::get());
        context_ = std::move(other.context_);
        return *this;
    }
    using graph_ref::get;
    static result<graph> try_create(const context &context) {
        dlc_graph *made = nullptr;
        const dlc_status status = dlc_graph_create(context.get(), &made);
        if (status != DLC_OK) return {status, dlc_error_message(context.get())};
        return graph(made, context.get());
    }
    DLC_TWIN(static graph create(const context &context), try_create(context))
    static result<graph> try_parse(const context &context, std::string_view text) {
        dlc_graph *made = nullptr;
        const dlc_status status = dlc_graph_parse(context.get(), text.data(), text.size(), &made);
        if (status != DLC_OK) return {status, dlc_error_message(context.get())};
        return graph(made, context.get());
    }
    DLC_TWIN(static graph parse(const context &context, std::string_view text), try_parse(context, text))
    result<std::string> try_print(bool elide_constants = false) const {
        dlc_print_options options = DLC_PRINT_OPTIONS_INIT;
        char *text = nullptr;
        options.elide_constants = elide_constants;
        const dlc_status status = dlc_graph_print_with(get(), &options, &text);
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        std::string copy(text);
        dlc_text_free(context_, text);
        return copy;
    }
    DLC_TWIN(std::string print(bool elide_constants = false) const, try_print(elide_constants))

  private:
    graph(dlc_graph *made, dlc_context *context) : owner(made), graph_ref(made), context_(context) {}
    detail::message_context context_;
};

/* ---- programs --------------------------------------------------------------------------------------------------------------- */

class event : public detail::owner<dlc_event, dlc_event_destroy> {
  public:
    event() = default;
    event(dlc_event *made, dlc_context *context) : owner(made), context_(context) {}
    result<bool> try_done() const {
        bool done = false;
        const dlc_status status = dlc_event_query(get(), &done);
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        return bool(done);
    }
    DLC_TWIN(bool done() const, try_done())
    result<void> try_wait() const { return detail::checked(dlc_event_wait(get()), context_); }
    DLC_TWIN(void wait() const, try_wait())

  private:
    detail::message_context context_;
};

class program : public detail::owner<dlc_program, dlc_program_destroy> {
  public:
    using tap_function = std::function<void(int tap, const char *name, const DLTensor &tensor)>;

    program() = default;
    static result<program> try_compile(const context &context, const graph_ref &graph,
                                       const dlc_compile_options &options = compile_options()) {
        dlc_program *made = nullptr;
        const dlc_status status = dlc_compile(context.get(), graph.get(), &options, &made);
        if (status != DLC_OK) return {status, dlc_error_message(context.get())};
        return program(made, context.get());
    }
    DLC_TWIN(static program compile(const context &context, const graph_ref &graph,
                                    const dlc_compile_options &options = compile_options()),
             try_compile(context, graph, options))

    int input_count() const { return dlc_program_input_count(get()); }
    int output_count() const { return dlc_program_output_count(get()); }
    const char *input_name(int input) const { return dlc_program_input_name(get(), input); }
    const char *output_name(int output) const { return dlc_program_output_name(get(), output); }
    dlc_context *get_context() const { return context_; }

    /* The library allocates the outputs. */
    result<std::vector<tensor>> try_run(list<view> inputs, const dlc_run_options &options = run_options()) const {
        std::vector<dlc_output_slot> slots(static_cast<std::size_t>(output_count()));
        const std::vector<const DLTensor *> given = detail::pointers(inputs);
        const dlc_status status =
            dlc_run(get(), &options, given.data(), inputs.count(), slots.data(), static_cast<int>(slots.size()));
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        std::vector<tensor> outputs;
        for (dlc_output_slot &slot : slots) outputs.emplace_back(slot.managed);
        return outputs;
    }
    DLC_TWIN(std::vector<tensor> run(list<view> inputs, const dlc_run_options &options = run_options()) const,
             try_run(inputs, options))
    /* Writes into the host's tensors. */
    result<void> try_run_into(list<view> inputs, list<view> outputs,
                              const dlc_run_options &options = run_options()) const {
        const std::vector<const DLTensor *> given = detail::pointers(inputs);
        std::vector<DLTensor *> into;
        std::vector<dlc_output_slot> slots;
        std::string said;
        if (!detail::writable_pointers(outputs, into, said)) return {DLC_INVALID_ARGUMENT, said};
        for (DLTensor *one : into) slots.push_back({one, nullptr});
        return detail::checked(dlc_run(get(), &options, given.data(), inputs.count(), slots.data(), outputs.count()),
                               context_);
    }
    DLC_TWIN(void run_into(list<view> inputs, list<view> outputs, const dlc_run_options &options = run_options()) const,
             try_run_into(inputs, outputs, options))
    /* dlc_run with options.event: returns when the work is submitted. */
    result<event> try_start(list<view> inputs, list<view> outputs,
                            const dlc_run_options &options = run_options()) const {
        dlc_event *made = nullptr;
        dlc_run_options own = options;
        own.event = &made;
        result<void> started = try_run_into(inputs, outputs, own);
        if (!started) return {started.status(), started.message()};
        return event(made, context_);
    }
    DLC_TWIN(event start(list<view> inputs, list<view> outputs, const dlc_run_options &options = run_options()) const,
             try_start(inputs, outputs, options))
    /* Binds and compiles for the shapes of these inputs. */
    result<void> try_prepare(const std::vector<std::vector<std::int64_t>> &shapes) const {
        const shape_list all(shapes);
        return detail::checked(dlc_prepare(get(), all.shapes.data(), all.ranks.data(), all.count()), context_);
    }
    DLC_TWIN(void prepare(const std::vector<std::vector<std::int64_t>> &shapes) const, try_prepare(shapes))
    result<void> try_alias(int output, int input) const {
        return detail::checked(dlc_program_alias(get(), output, input), context_);
    }
    DLC_TWIN(void alias(int output, int input) const, try_alias(output, input))

    void profile(bool on) const { dlc_program_profile(get(), on); }
    result<std::string> try_dump(const char *stage, const std::vector<std::vector<std::int64_t>> &shapes = {}) const {
        const shape_list all(shapes);
        char *text = nullptr;
        const dlc_status status =
            dlc_program_dump(get(), stage, all.shapes.data(), all.ranks.data(), all.count(), &text);
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        std::string copy(text);
        dlc_text_free(context_, text);
        return copy;
    }
    DLC_TWIN(std::string dump(const char *stage, const std::vector<std::vector<std::int64_t>> &shapes = {}) const,
             try_dump(stage, shapes))
    /* dlc_program_tap. The function must not throw. */
    result<void> try_tap(list<value> values, tap_function function) {
        auto kept = std::make_unique<tap_function>(std::move(function));
        const auto call = [](void *user, int tap, const char *name, const DLTensor *tensor) {
            (*static_cast<tap_function *>(user))(tap, name, *tensor);
        };
        const dlc_status status =
            dlc_program_tap(get(), values.count(), values.data(), *kept ? +call : nullptr, kept.get());
        if (status == DLC_OK) tap_ = std::move(kept);
        return detail::checked(status, context_);
    }
    DLC_TWIN(void tap(list<value> values, tap_function function), try_tap(values, std::move(function)))

  private:
    struct shape_list {
        explicit shape_list(const std::vector<std::vector<std::int64_t>> &given) {
            for (const auto &shape : given)
                shapes.push_back(shape.data()), ranks.push_back(static_cast<int>(shape.size()));
        }
        int count() const { return static_cast<int>(ranks.size()); }
        std::vector<const std::int64_t *> shapes;
        std::vector<int> ranks;
    };
    program(dlc_program *made, dlc_context *context) : owner(made), context_(context) {}
    detail::message_context context_;
    std::unique_ptr<tap_function> tap_;
};

/* dlc_program_compare. */
inline result<dlc_difference> try_compare(const program &first, const program &second, list<view> inputs,
                                          dlc_compare_options options = DLC_COMPARE_OPTIONS_INIT) {
    dlc_difference difference = DLC_DIFFERENCE_INIT;
    const std::vector<const DLTensor *> given = detail::pointers(inputs);
    const dlc_status status =
        dlc_program_compare(first.get(), second.get(), &options, given.data(), inputs.count(), &difference);
    if (status != DLC_OK) return {status, dlc_error_message(first.get_context())};
    return dlc_difference(difference);
}
DLC_TWIN(inline dlc_difference compare(const program &first, const program &second, list<view> inputs,
                                       dlc_compare_options options = DLC_COMPARE_OPTIONS_INIT),
         try_compare(first, second, inputs, options))

/* dlc_call: tensors given beforehand; their data belong to the host. */
class call : public detail::owner<dlc_call, dlc_call_destroy> {
  public:
    call() = default;
    static result<call> try_create(const program &program, list<view> inputs, list<view> outputs) {
        const std::vector<const DLTensor *> in = detail::pointers(inputs);
        std::vector<DLTensor *> out;
        std::string said;
        if (!detail::writable_pointers(outputs, out, said)) return {DLC_INVALID_ARGUMENT, said};
        dlc_call *made = nullptr;
        const dlc_status status =
            dlc_call_create(program.get(), in.data(), inputs.count(), out.data(), outputs.count(), &made);
        if (status != DLC_OK) return {status, dlc_error_message(program.get_context())};
        return call(made, program.get_context());
    }
    DLC_TWIN(static call create(const program &program, list<view> inputs, list<view> outputs),
             try_create(program, inputs, outputs))
    result<void> try_run() const { return detail::checked(dlc_call_run(get(), nullptr), context_); }
    DLC_TWIN(void run() const, try_run())
    result<void> try_set_input(int input, const void *data) const {
        return detail::checked(dlc_call_set_input(get(), input, data), context_);
    }
    DLC_TWIN(void set_input(int input, const void *data) const, try_set_input(input, data))
    result<void> try_set_output(int output, void *data) const {
        return detail::checked(dlc_call_set_output(get(), output, data), context_);
    }
    DLC_TWIN(void set_output(int output, void *data) const, try_set_output(output, data))

  private:
    call(dlc_call *made, dlc_context *context) : owner(made), context_(context) {}
    detail::message_context context_;
};

#undef DLC_TWIN

} // namespace dlc

#include <dlc/ops.hpp>

#endif
