/* libdlc for C++17, header only: <dlc/gradient.h> and <dlc/train.h> by the owners, lists and error policy of <dlc/dlc.hpp>. Conventions,
 * shapes, threads and lifetimes are those of the C headers.
 *
 *   std::vector<dlc::value> g = dlc::gradient(loss, {w, b});
 *
 *   const auto build = [](dlc::training &t) {
 *       dlc::value x = t.input("x", DLC_F32, {"n", 64}), labels = t.input("labels", DLC_I32, {"n"});
 *       dlc::value w = t.parameter("w", DLC_F32, {64, 10}, dlc::uniform(0.1)), b = t.parameter("b", DLC_F32, {10});
 *       return dlc::mean(dlc::cross_entropy(dlc::linear(x, w, b), labels, 1), {});
 *   };
 *   dlc::trainer trainer = dlc::trainer::create(context, build);
 *   double loss = trainer.step({dlc::view(pixels, {32, 64}), dlc::view(digits, {32})}).loss; */
#ifndef DLC_TRAIN_HPP
#define DLC_TRAIN_HPP

#include <dlc/dlc.hpp>
#include <dlc/train.h>

namespace dlc {

#if DLC_EXCEPTIONS
#define DLC_TWIN(declaration, call) \
    declaration {                   \
        return call.take();         \
    }
#else
#define DLC_TWIN(declaration, call)
#endif

/* ---- derivatives: builder calls, whose mistakes the graph records ---------------------------------------------------------------- */

/* dlc_gradient: for each of wrt the derivative of the loss. */
inline std::vector<value> gradient(const value &loss, list<value> wrt) {
    std::vector<value> out(wrt.size());
    dlc_gradient(loss, wrt.count(), wrt.data(), out.data());
    return out;
}
namespace detail {
/* The vectors that belong to values; null if they are not as many, which the library then records as a mistake. */
inline const dlc_value *vectors_of(list<value> values, list<value> vectors) {
    return vectors.size() == values.size() ? vectors.data() : nullptr;
}
} // namespace detail
/* dlc_vjp: as many cotangents as results; one product for each of wrt. */
inline std::vector<value> vjp(list<value> results, list<value> cotangents, list<value> wrt) {
    std::vector<value> out(wrt.size());
    dlc_vjp(results.count(), results.data(), detail::vectors_of(results, cotangents), wrt.count(), wrt.data(),
            out.data());
    return out;
}
/* dlc_jvp: as many tangents as x; one product for each result. */
inline std::vector<value> jvp(list<value> x, list<value> tangents, list<value> results) {
    std::vector<value> out(results.size());
    dlc_jvp(x.count(), x.data(), detail::vectors_of(x, tangents), results.count(), results.data(), out.data());
    return out;
}
/* dlc_hvp: as many directions as x; one product for each x. */
inline std::vector<value> hvp(const value &loss, list<value> x, list<value> direction) {
    std::vector<value> out(x.size());
    dlc_hvp(loss, x.count(), x.data(), detail::vectors_of(x, direction), out.data());
    return out;
}
/* dlc_mixed_precision: products in DLC_BF16 or DLC_F16. */
inline std::vector<value> mixed_precision(list<value> y, dlc_dtype narrow) {
    std::vector<value> out(y.size());
    dlc_mixed_precision(y.count(), y.data(), narrow, out.data());
    return out;
}

/* ---- what is trained ----------------------------------------------------------------------------------------------------------------- */

inline dlc_parameter_options parameter_options(dlc_initial initial = DLC_INITIAL_CONSTANT, double scale = 0) {
    dlc_parameter_options options = DLC_PARAMETER_OPTIONS_INIT;
    options.initial = initial, options.scale = scale;
    return options;
}
/* Values at the start, from -scale to scale; of this standard deviation. */
inline dlc_parameter_options uniform(double scale) {
    return parameter_options(DLC_INITIAL_UNIFORM, scale);
}
inline dlc_parameter_options normal(double deviation) {
    return parameter_options(DLC_INITIAL_NORMAL, deviation);
}

/* dlc_training: what the function of a trainer builds with. */
class training {
  public:
    explicit training(dlc_training *made) : training_(made) {}
    dlc_training *get() const noexcept { return training_; }
    graph_ref graph() const { return dlc_training_graph(training_); }
    /* Whether a step is built, or else evaluation. */
    bool is_step() const { return dlc_training_is_step(training_); }
    value input(const char *name, dlc_dtype dtype, list<dim> dims) const {
        return dlc_training_input(training_, name, dtype, dims.count(), dims.data());
    }
    value parameter(const char *name, dlc_dtype dtype, list<std::int64_t> shape,
                    const dlc_parameter_options &options = parameter_options()) const {
        return dlc_training_parameter(training_, name, dtype, shape.count(), shape.data(), &options);
    }
    value carried(const char *name, dlc_dtype dtype, list<std::int64_t> shape,
                  const dlc_parameter_options &options = parameter_options()) const {
        return dlc_training_carried(training_, name, dtype, shape.count(), shape.data(), &options);
    }
    void carry(const char *name, const value &next) const { dlc_training_carry(training_, name, next); }
    value key() const { return dlc_training_key(training_); }
    value steps() const { return dlc_training_steps(training_); }
    void output(const char *name, const value &y) {
        dlc_training_output(training_, name, y);
        outputs_++;
    }
    /* How many calls of output there were. */
    std::size_t outputs() const { return outputs_; }

  private:
    dlc_training *training_;
    std::size_t outputs_ = 0;
};

/* ---- trainers --------------------------------------------------------------------------------------------------------------------------- */

inline dlc_trainer_options trainer_options() {
    return DLC_TRAINER_OPTIONS_INIT;
}

/* What a step gives: the report, and the outputs, which the library allocated. */
struct trained : dlc_training_report {
    trained() : dlc_training_report(DLC_TRAINING_REPORT_INIT) {}
    std::vector<tensor> outputs;
};

/* What an evaluation gives. loss: NaN if the function has none. */
struct evaluated {
    double loss = 0;
    std::vector<tensor> outputs;
};

class trainer : public detail::owner<dlc_trainer, dlc_trainer_destroy> {
  public:
    /* Returns the loss; without a graph: there is none, in evaluation. What it throws ends create: as dlc::error with its message. */
    using function = std::function<value(training &)>;

    trainer() = default;
    static result<trainer> try_create(const context &context, const function &build,
                                      const dlc_trainer_options &options = trainer_options()) {
        building b{build, {0, 0}, {}};
        dlc_trainer *made = nullptr;
        const dlc_status status = dlc_trainer_create(context.get(), call_build, &b, &options, &made);
        if (status != DLC_OK) return {status, b.thrown.empty() ? dlc_error_message(context.get()) : b.thrown};
        return trainer(made, context.get(), b.outputs);
    }
    DLC_TWIN(static trainer create(const context &context, const function &build,
                                   const dlc_trainer_options &options = trainer_options()),
             try_create(context, build, options))

    result<trained> try_step(list<view> batch, const dlc_run_options &options = run_options()) {
        const std::vector<const DLTensor *> given = detail::pointers(batch);
        std::vector<dlc_output_slot> slots(outputs_[1]);
        trained out;
        const dlc_status status = dlc_trainer_step(get(), &options, given.data(), batch.count(), &out, slots.data(),
                                                   static_cast<int>(slots.size()));
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        for (dlc_output_slot &slot : slots) out.outputs.emplace_back(slot.managed);
        return out;
    }
    DLC_TWIN(trained step(list<view> batch, const dlc_run_options &options = run_options()), try_step(batch, options))

    result<evaluated> try_evaluate(list<view> batch, const dlc_run_options &options = run_options()) {
        const std::vector<const DLTensor *> given = detail::pointers(batch);
        std::vector<dlc_output_slot> slots(outputs_[0]);
        evaluated out;
        const dlc_status status = dlc_trainer_evaluate(get(), &options, given.data(), batch.count(), &out.loss,
                                                       slots.data(), static_cast<int>(slots.size()));
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        for (dlc_output_slot &slot : slots) out.outputs.emplace_back(slot.managed);
        return out;
    }
    DLC_TWIN(evaluated evaluate(list<view> batch, const dlc_run_options &options = run_options()),
             try_evaluate(batch, options))

    /* Names of the state's tensors, in the order of dlc_trainer_name. */
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (int i = 0; i < dlc_trainer_count(get()); i++) all.emplace_back(dlc_trainer_name(get(), i));
        return all;
    }
    /* A copy of a tensor of the state. */
    result<tensor> try_read(const char *name) const {
        DLManagedTensorVersioned *made = nullptr;
        const dlc_status status = dlc_trainer_tensor(get(), name, &made);
        if (status != DLC_OK) return {status, dlc_error_message(context_)};
        return tensor(made);
    }
    DLC_TWIN(tensor read(const char *name) const, try_read(name))
    result<void> try_set(const char *name, const view &from) {
        return detail::checked(dlc_trainer_set(get(), name, from.get()), context_);
    }
    DLC_TWIN(void set(const char *name, const view &from), try_set(name, from))

    /* dlc_trainer_save, _save_weights, _load. */
    result<void> try_save(const char *path) const { return detail::checked(dlc_trainer_save(get(), path), context_); }
    DLC_TWIN(void save(const char *path) const, try_save(path))
    result<void> try_save_weights(const char *path) const {
        return detail::checked(dlc_trainer_save_weights(get(), path), context_);
    }
    DLC_TWIN(void save_weights(const char *path) const, try_save_weights(path))
    result<void> try_load(const char *path) { return detail::checked(dlc_trainer_load(get(), path), context_); }
    DLC_TWIN(void load(const char *path), try_load(path))

  private:
    /* While dlc_trainer_create runs. outputs: of evaluation, of a step */
    struct building {
        const function &build;
        std::array<std::size_t, 2> outputs;
        std::string thrown;
    };
    static dlc_status call_build(void *user, dlc_training *made, dlc_value *loss) {
        building *b = static_cast<building *>(user);
        training t(made);
        if (!b->build) return b->thrown = "the trainer has no function", DLC_INVALID_ARGUMENT;
#if DLC_EXCEPTIONS /* none passes through the library */
        try {
#endif
            const value built = b->build(t);
            if (built.graph) *loss = built;
            b->outputs[t.is_step()] = t.outputs();
            return DLC_OK;
#if DLC_EXCEPTIONS
        } catch (const error &e) {
            b->thrown = e.what();
            return e.status();
        } catch (const std::exception &e) {
            b->thrown = e.what();
        } catch (...) {
            b->thrown = "the function of the trainer has thrown what is no std::exception";
        }
        return DLC_INVALID_ARGUMENT;
#endif
    }
    trainer(dlc_trainer *made, dlc_context *context, std::array<std::size_t, 2> outputs)
        : owner(made), context_(context), outputs_(outputs) {}
    detail::message_context context_;
    std::array<std::size_t, 2> outputs_ = {0, 0};
};

#undef DLC_TWIN

} // namespace dlc

#endif
