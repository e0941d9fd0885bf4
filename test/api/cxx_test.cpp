// <dlc/dlc.hpp> and <dlc/train.hpp> as a host uses it, with exceptions and without: cxx_test.sh compiles and runs this with each compiler.
#include <dlc/dlc.hpp>
#include <dlc/train.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

static int passed, failed;
#define CHECK(condition) \
    ((condition) ? (void)passed++ : (void)(failed++, std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition)))

template <typename T>
constexpr bool move_only = std::is_nothrow_move_constructible_v<T> && !std::is_copy_constructible_v<T>;
static_assert(move_only<dlc::context> && move_only<dlc::graph> && move_only<dlc::call> && move_only<dlc::tensor>);
static_assert(!std::is_copy_constructible_v<dlc::program> && std::is_move_constructible_v<dlc::program>);
static_assert(std::is_copy_constructible_v<dlc::value> && std::is_copy_constructible_v<dlc::view>);

static bool close(double a, double b) {
    return std::fabs(a - b) <= 1e-5 * (1 + std::fabs(b));
}

static const float weights[6] = {1, 2, 3, 4, 5, 6}, bias[2] = {-20, 1}, data[6] = {1, 0, 2, 3, 1, 0};

// y = relu(x w + b) * 2 - 1, for any number of rows
static dlc::graph make_graph(dlc::context &context, dlc::value *product = nullptr) {
    dlc::graph g = std::move(*dlc::graph::try_create(context));
    dlc::value x = g.input("x", DLC_F32, {"rows", 3});
    dlc::value w = g.borrow({3, 2}, weights), b = g.constant({2}, std::vector<float>(bias, bias + 2));
    dlc::value p = dlc::linear(x, w, b);
    if (product) *product = p;
    CHECK(bool(g.try_output("y", dlc::relu(p) * 2 - 1)));
    CHECK(bool(g.try_check()));
    return g;
}

static void check_rows(const float *y) {
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
            double sum = static_cast<double>(bias[c]);
            for (int k = 0; k < 3; k++)
                sum += static_cast<double>(data[3 * r + k]) * static_cast<double>(weights[2 * k + c]);
            CHECK(close(static_cast<double>(y[2 * r + c]), (sum > 0 ? sum : 0) * 2 - 1));
        }
}

static void test_run(dlc::context &context) {
    dlc::graph g = make_graph(context);
    dlc::program p = std::move(*dlc::program::try_compile(context, g));
    CHECK(p.input_count() == 1 && p.output_count() == 1 && std::strcmp(p.output_name(0), "y") == 0);
    auto ran = p.try_run({dlc::view(data, {2, 3})});
    CHECK(bool(ran) && ran->size() == 1);
    dlc::tensor y = std::move(ran->front());
    CHECK(y.size() == 4 && y.shape().count() == 2 && y.shape()[0] == 2 && y.holds<float>() && !y.data<double>());
    check_rows(y.data<float>());
    float into[4] = {}, again[4] = {};
    CHECK(bool(p.try_run_into({dlc::view(data, {2, 3})}, {dlc::view(into, {2, 2})})));
    check_rows(into);
    const float turned[6] = {1, 3, 0, 1, 2, 0}; // the same with strides
    CHECK(bool(p.try_run_into({dlc::view(turned, {2, 3}, {1, 2})}, {dlc::view(again, {2, 2})})));
    CHECK(std::memcmp(into, again, sizeof into) == 0);
    auto call = dlc::call::try_create(p, {dlc::view(data, {2, 3})}, {dlc::view(into, {2, 2})});
    CHECK(bool(call) && call->try_set_output(0, again) && call->try_set_input(0, data) && call->try_run());
    check_rows(again);
    auto started = p.try_start({dlc::view(data, {2, 3})}, {dlc::view(into, {2, 2})});
    CHECK(bool(started) && started->try_wait() && *started->try_done());
    CHECK(bool(p.try_prepare({{5, 3}})));
    CHECK(p.try_dump("plan", {{2, 3}})->find("plan:") != std::string::npos);
    dlc::program moved = std::move(p);
    CHECK(!p && moved && moved.try_run({dlc::view(data, {2, 3})}));
    dlc::graph taken = std::move(g);
    CHECK(!g && !g.get() && taken.get());
    dlc::graph &same = taken;
    taken = std::move(same);
    CHECK(taken && taken.get() && taken.try_print());
    CHECK(p.try_run({}).message().find("the program is NULL") != std::string::npos); // moved from: told all the same
    // elements that are const are no outputs
    const float constant[4] = {};
    const dlc::view read_only(constant, {2, 2}), by_type(static_cast<const void *>(constant), DLC_F32, {2, 2});
    CHECK(!read_only.writable() && !by_type.writable() && dlc::view(into, DLC_F32, {2, 2}).writable());
    for (const dlc::view &out : {read_only, by_type, dlc::view(read_only)}) {
        const dlc::result<void> refused = moved.try_run_into({dlc::view(data, {2, 3})}, {out});
        CHECK(refused.status() == DLC_INVALID_ARGUMENT && refused.message().find("output 0") == 0);
        CHECK(!dlc::call::try_create(moved, {dlc::view(data, {2, 3})}, {out}));
        CHECK(!moved.try_start({dlc::view(data, {2, 3})}, {out}));
    }
    CHECK(bool(moved.try_run_into({dlc::view(data, {2, 3})}, {y}))); // a result of the library's can be
    const auto constant_result = dlc::graph::try_create(context);
    CHECK(constant_result && constant_result->get() && (*constant_result).get());
    CHECK(context.statistics().runs > 0);
}

static void test_operators(dlc::context &context) {
    dlc::graph g = std::move(*dlc::graph::try_create(context));
    dlc::value x = g.input("x", DLC_F64, {4});
    CHECK(x.rank() == 1 && x.size(0).value == 4 && x.dtype() == DLC_F64);
    dlc::value y = (1 / x + x * x - -x) / 2;
    y += x;
    y *= x.like(3);
    dlc::reduce_sum_options keep;
    keep.keep = true;
    g.try_output("y", y);
    g.try_output("sum", dlc::reduce_sum(x, {0}, keep));
    g.try_output("greatest", dlc::reduce_max(x));
    g.try_output("above", x > 2);
    auto [sorted, places] = dlc::sort(dlc::concat({x, x}, 0), 0, {true, DLC_I32});
    g.try_output("sorted", sorted);
    g.try_output("places", places);
    dlc::slice_options every;
    every.step = {2};
    g.try_output("even", dlc::slice(x, {0}, {4}, every));
    g.try_output("not", dlc::not_(x > 2));
    auto p = dlc::program::try_compile(context, g);
    CHECK(bool(p));
    const double in[4] = {1, 4, 2, 3};
    auto ran = p->try_run({dlc::view(in, {4})});
    CHECK(bool(ran) && ran->size() == 8);
    if (!ran) return;
    auto &out = *ran;
    for (int i = 0; i < 4; i++)
        CHECK(close(out[0].data<double>()[i], ((1 / in[i] + in[i] * in[i] + in[i]) / 2 + in[i]) * 3));
    CHECK(out[1].shape().count() == 1 && out[1].data<double>()[0] == 10 && out[2].data<double>()[0] == 4);
    CHECK(!out[3].data<bool>()[0] && out[3].data<bool>()[1] && !out[3].data<bool>()[2] && out[7].data<bool>()[0]);
    CHECK(out[4].data<double>()[0] == 4 && out[4].data<double>()[7] == 1 && out[5].data<std::int32_t>()[0] == 1);
    CHECK(out[6].size() == 2 && out[6].data<double>()[1] == 2);
}

static void test_control(dlc::context &context) { // x doubled until its sum is 100 at least
    dlc::graph g = std::move(*dlc::graph::try_create(context));
    dlc::value x = g.input("x", DLC_F32, {2});
    dlc::graph_ref go = g.subgraph(), body = g.subgraph();
    go.try_output("go", dlc::reduce_sum(go.input("x", DLC_F32, {2})) < 100);
    body.try_output("x", body.input("x", DLC_F32, {2}) * 2);
    g.try_output("y", dlc::while_({x}, go, body, 1)[0]);
    auto p = dlc::program::try_compile(context, g);
    CHECK(bool(p));
    const float in[2] = {1, 2};
    auto y = p->try_run({dlc::view(in, {2})});
    CHECK(bool(y) && y->front().data<float>()[0] == 64 && y->front().data<float>()[1] == 128);
}

static void test_looking(dlc::context &context) {
    dlc::value product;
    dlc::graph g = make_graph(context, &product);
    auto p = dlc::program::try_compile(context, g), other = dlc::program::try_compile(context, g);
    int seen = 0;
    CHECK(bool(p->try_tap({product.named("product")}, [&](int, const char *name, const DLTensor &tensor) {
        seen += std::strcmp(name, "product") == 0 && tensor.ndim == 2 && tensor.shape[0] == 2;
    })));
    CHECK(p->try_run({dlc::view(data, {2, 3})}) && seen == 1);
    CHECK(bool(p->try_tap({}, {})));
    auto difference = dlc::try_compare(*p, *other, {dlc::view(data, {2, 3})});
    CHECK(bool(difference) && !difference->found);
    auto text = g.try_print(true);
    CHECK(bool(text) && dlc::graph::try_parse(context, *text));
}

// A graph that was moved tells why a call on it failed.
static bool refuses;
static void *take(void *, std::size_t size, std::size_t alignment) {
    return refuses ? nullptr : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
static void give(void *, void *memory, std::size_t, std::size_t) {
    std::free(memory);
}

static void test_messages() {
    const dlc_allocator allocator = {take, give, nullptr};
    dlc_context_options options = dlc::context_options();
    options.allocator = &allocator;
    auto context = dlc::context::try_create(options);
    CHECK(bool(context));
    dlc::graph g = make_graph(*context), moved = std::move(g);
    g = std::move(moved);
    refuses = true;
    const auto text = g.try_print();
    refuses = false;
    CHECK(text.status() == DLC_OUT_OF_MEMORY && !text.message().empty());
}

static void test_files(dlc::context &context, const char *path) {
    const dlc::view view(weights, {3, 2});
    const char *name = "w";
    const DLTensor *tensor = view.get();
    CHECK(dlc_file_write_safetensors(context.get(), path, 1, &name, &tensor, 0, nullptr, nullptr) == DLC_OK);
    auto file = dlc::file::try_open(context, path);
    CHECK(bool(file) && file->names() == std::vector<std::string>{"w"});
    auto read = file->try_read("w");
    CHECK(bool(read) && std::memcmp(read->data<float>(), weights, sizeof weights) == 0);
    CHECK(file->try_read("v").status() == DLC_NOT_FOUND);
    dlc::graph g = std::move(*dlc::graph::try_create(context));
    CHECK(g.constant(*file, "w").ok());
    CHECK(!dlc::view(*read).writable()); // the file's bytes
    std::remove(path);
    // in Fortran order: no list of elements in row-major order
    std::string npy = "\x93NUMPY\x01", header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n";
    npy += std::string(1, '\0') + std::string(1, static_cast<char>(header.size())) + std::string(1, '\0') + header;
    npy.append(reinterpret_cast<const char *>(weights), sizeof weights);
    std::FILE *out = std::fopen(path, "wb");
    CHECK(out && std::fwrite(npy.data(), 1, npy.size(), out) == npy.size() && std::fclose(out) == 0);
    auto fortran = dlc::file::try_open(context, path);
    CHECK(bool(fortran));
    auto columns = fortran->try_read("");
    CHECK(bool(columns) && columns->size() == 6 && columns->holds<float>() && !columns->is_compact());
    CHECK(!columns->data<float>() && columns->elements<float>().size() == 0 && read->is_compact());
    std::remove(path);
}

// of f = sum of x^3: 3 x^2, 6 x v, and products with the Jacobian of x^3
static void test_derivatives(dlc::context &context) {
    dlc::graph g = std::move(*dlc::graph::try_create(context));
    const dlc::value x = g.input("x", DLC_F32, {3}), v = g.input("v", DLC_F32, {3}), cube = x * x * x;
    const dlc::value f = dlc::reduce_sum(cube, {0});
    g.try_output("gradient", dlc::gradient(f, {x})[0]);
    g.try_output("hvp", dlc::hvp(f, {x}, {v})[0]);
    g.try_output("vjp", dlc::vjp({cube}, {v}, {x})[0]);
    g.try_output("jvp", dlc::jvp({x}, {v}, {cube})[0]);
    CHECK(dlc::mixed_precision({f}, DLC_BF16)[0].ok());
    for (int call = 0; call < 3; call++) { // lists of other lengths are mistakes of the graph
        dlc::graph h = std::move(*dlc::graph::try_create(context));
        const dlc::value y = h.input("y", DLC_F32, {3}), sum = dlc::reduce_sum(y, {0});
        const dlc::value d = call == 0   ? dlc::vjp({y, y}, {y}, {y})[0]
                             : call == 1 ? dlc::jvp({y}, {}, {sum})[0]
                                         : dlc::hvp(sum, {y}, {y, y})[0];
        CHECK(!d.ok() && !dlc::linear(h.input("a", DLC_F32, {3, 3}), h.input("b", DLC_F32, {3, 3}), d).ok());
        CHECK(h.try_check().message().find("there are no vectors") != std::string::npos);
    }
    dlc::program p = std::move(*dlc::program::try_compile(context, g));
    const float at[3] = {1, -2, 3}, along[3] = {2, 1, -1};
    auto ran = p.try_run({dlc::view(at, {3}), dlc::view(along, {3})});
    CHECK(bool(ran) && ran->size() == 4);
    for (std::size_t i = 0; ran && i < 3; i++) {
        const double a = static_cast<double>(at[i]), b = static_cast<double>(along[i]);
        const double wanted[4] = {3 * a * a, 6 * a * b, 3 * a * a * b, 3 * a * a * b};
        for (std::size_t o = 0; o < 4; o++) CHECK(close(static_cast<double>((*ran)[o].data<float>()[i]), wanted[o]));
    }
}

static dlc::value build_line(dlc::training &t) {
    const dlc::value x = t.input("x", DLC_F32, {"n", 3});
    const dlc::value w = t.parameter("w", DLC_F32, {3, 2}, dlc::uniform(0.5)), b = t.parameter("b", DLC_F32, {2});
    const dlc::value y = dlc::linear(x, w, b);
    t.output("y", y);
    if (!t.is_step()) return {};
    const dlc::value error = y - t.input("wanted", DLC_F32, {"n", 2});
    t.output("error", error);
    return dlc::mean(error * error, {0, 1});
}

static void test_training(dlc::context &context, const char *path) {
    static_assert(move_only<dlc::trainer>);
    dlc_trainer_options options = dlc::trainer_options();
    options.optimizer = "sgd", options.rate = "0.05";
    auto made = dlc::trainer::try_create(context, build_line, options);
    CHECK(bool(made));
    if (!made) return;
    dlc::trainer trainer = std::move(*made);
    const float wanted[4] = {1, 0, 0, 1};
    const dlc::view x(data, {2, 3}), y(wanted, {2, 2});
    double first = 0, last = 0;
    for (int i = 0; i < 50; i++) {
        auto step = trainer.try_step({x, y});
        CHECK(bool(step) && step->step == i + 1 && step->outputs.size() == 2 && step->outputs[1].size() == 4);
        if (!step) return;
        (i ? last : first) = step->loss;
    }
    CHECK(last < 0.1 * first);
    auto seen = trainer.try_evaluate({x, y});
    CHECK(!seen && seen.status() == DLC_INVALID_ARGUMENT); // evaluation has no second input
    seen = trainer.try_evaluate({x});
    CHECK(bool(seen) && std::isnan(seen->loss) && seen->outputs.size() == 1 && seen->outputs[0].size() == 4);
    CHECK(trainer.names().size() >= 2 && trainer.names()[0] == "w");
    const float bias_[2] = {3, 4};
    CHECK(bool(trainer.try_save(path)) && bool(trainer.try_set("b", dlc::view(bias_, {2}))));
    CHECK(trainer.try_read("b")->data<float>()[1] == 4);
    CHECK(bool(trainer.try_load(path)) && trainer.try_read("b")->data<float>()[1] != 4);
    CHECK(bool(trainer.try_save_weights(path)) && !trainer.try_load(path) && !trainer.try_read("c"));
    std::remove(path);
    options.optimizer = "soup";
    CHECK(dlc::trainer::try_create(context, build_line, options).status() == DLC_NOT_FOUND);
    CHECK(dlc::trainer::try_create(context, nullptr).status() == DLC_INVALID_ARGUMENT);
#if DLC_EXCEPTIONS
    auto thrown =
        dlc::trainer::try_create(context, [](dlc::training &) -> dlc::value { throw std::runtime_error("no data"); });
    CHECK(!thrown && thrown.message() == "no data");
    std::string message;
    try {
        trainer.step({y, x});
    } catch (const dlc::error &error) {
        message = error.what();
    }
    CHECK(message.find("input x") != std::string::npos);
    CHECK(trainer.step({x, y}).step == 51);
#endif
}

static void test_mistakes(dlc::context &context) {
    dlc::graph g = std::move(*dlc::graph::try_create(context));
    dlc::value x = g.input("x", DLC_F32, {2, 3});
    dlc::value wrong = x + g.input("y", DLC_F32, {4});
    CHECK(!wrong.ok() && !dlc::exp(wrong).ok());
    auto said = g.try_output("y", wrong);
    CHECK(!said && said.status() == DLC_INVALID_ARGUMENT && said.message().find("add") != std::string::npos);
    CHECK(!dlc::program::try_compile(context, g) && !dlc::context::try_create("soup"));
    CHECK(dlc::graph::try_parse(context, "graph { soup }").status() == DLC_PARSE_ERROR);
#if DLC_EXCEPTIONS
    dlc_status status = DLC_OK;
    std::string message;
    try {
        dlc::program::compile(context, g);
    } catch (const dlc::error &error) {
        status = error.status(), message = error.what();
    }
    CHECK(status == DLC_INVALID_ARGUMENT && message.find("add") != std::string::npos);
    try {
        const dlc::graph good = make_graph(context);
        dlc::program p = dlc::program::compile(context, good);
        check_rows(p.run({dlc::view(data, {2, 3})})[0].data<float>());
        status = DLC_OK;
        p.run({dlc::view(data, {3, 2})});
    } catch (const std::exception &error) {
        message = error.what(), status = DLC_CANCELLED;
    }
    CHECK(status == DLC_CANCELLED && message.find("input x") != std::string::npos);
#endif
}

int main(int, char **arguments) {
    auto context = dlc::context::try_create();
    CHECK(bool(context));
    if (!context) return 1;
    test_run(*context);
    test_operators(*context);
    test_control(*context);
    test_looking(*context);
    test_files(*context, (std::string(arguments[0]) + ".safetensors").c_str());
    test_derivatives(*context);
    test_training(*context, (std::string(arguments[0]) + ".safetensors").c_str());
    test_mistakes(*context);
    test_messages();
    std::printf("%d checks, %d failed\n", passed + failed, failed);
    return failed != 0;
}
