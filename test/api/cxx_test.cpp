// <dlc/dlc.hpp> as a host uses it, with exceptions and without: cxx_test.sh compiles and runs this with each compiler.
#include <dlc/dlc.hpp>

#include <cmath>
#include <cstdio>
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
    std::remove(path);
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
    test_mistakes(*context);
    std::printf("%d checks, %d failed\n", passed + failed, failed);
    return failed != 0;
}
