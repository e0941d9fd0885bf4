// C++: a network of two layers and a loop around it, with <dlc/dlc.hpp>. Nothing is freed by hand, and errors are exceptions.
#include <dlc/dlc.hpp>

#include <cstdio>

// x is replaced by tanh(x w + b) until it changes by less than 1e-4; `w` and `b` are values of the graph around the loop.
static dlc::value fixed_point(dlc::graph &graph, const dlc::value &start, const dlc::value &w, const dlc::value &b) {
    dlc::graph_ref go = graph.subgraph(), body = graph.subgraph();
    go.input("x", DLC_F32, {1, 2});
    go.output("go on", go.input("change", DLC_F32, {}) > 1e-4);

    dlc::value x = body.input("x", DLC_F32, {1, 2});
    body.input("change", DLC_F32, {});
    dlc::value next = dlc::tanh(dlc::linear(x, w, b));
    body.output("x", next);
    body.output("change", dlc::reduce_max(dlc::abs(next - x)));
    return dlc::while_({start, graph.scalar(DLC_F32, 1)}, go, body, 2)[0];
}

int main() try {
    const std::vector<float> weights = {0.5f, -0.25f, 0.25f, 0.5f}, bias = {0.1f, 0.2f};
    dlc::context context = dlc::context::create();
    dlc::graph graph = dlc::graph::create(context);
    dlc::value x = graph.input("x", DLC_F32, {1, 2});
    dlc::value w = graph.constant({2, 2}, weights), b = graph.constant({2}, bias);
    graph.output("y", fixed_point(graph, x, w, b) * 100);
    dlc::program program = dlc::program::compile(context, graph);

    const float start[2] = {3, -3};
    std::vector<dlc::tensor> y = program.run({dlc::view(start, {1, 2})});
    std::printf("100 x = %.1f %.1f\n", static_cast<double>(y[0].data<float>()[0]),
                static_cast<double>(y[0].data<float>()[1]));

    try { // an error is reported at the first call that depends on it
        dlc::graph wrong = dlc::graph::create(context);
        wrong.output("y", wrong.input("a", DLC_F32, {4, 3}) + wrong.input("b", DLC_F32, {4, 2}));
    } catch (const dlc::error &error) {
        std::printf("a mistake reads: %s\n", error.what());
    }
} catch (const dlc::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
