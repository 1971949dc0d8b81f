"""Mutants: rows."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="no memory to decode a batch makes it invalid",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_want.py::"
        "test_committed_write_is_applied_later_if_arrow_has_no_memory_to_decode_it",
        file="replica/rows/batch.py",
        function="MessageDecoder.decode",
        before="except MemoryError:  # Arrow's, too, which is no fault of the batch",
        after="except SystemError:",
    ),
    Mutant(
        name="no memory to read a condition makes it invalid",
        rows="IN-30",
        test="tests/tidy/test_borders.py::test_lack_of_memory_is_no_refusal_of_arrow",
        file="replica/rpc/tables.py",
        function="predicate_from_pb",
        before="except MemoryError:  # Arrow's, too, which is no fault of the values",
        after="except SystemError:",
        on_disk=True,
    ),
    Mutant(
        name="value that Python cannot hold raises",
        rows="IN-82",
        test="tests/unit/rows/test_rows_conversion.py::test_stored_value_is_its_python_value_or_its_text",
        file="replica/rows/conversion.py",
        function="python_value",
        before="return iso_text(scalar)",
        after="raise",
    ),
    Mutant(
        name="range begins at null",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_creations.py::"
            "test_creation_with_a_bad_field_is_refused_with_the_value_and_changes_nothing"
        ),
        file="replica/rows/partition.py",
        function="PartitionSpec.validate_for",
        before="if split is None:",
        after="if split is ...:",
    ),
    Mutant(
        name="slice of rows is hashed from its array",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_every_type.py::"
            "test_key_hash_of_every_type_in_every_form_is_one_and_changes_nothing"
        ),
        file="replica/rows/buffers.py",
        function="decimal_words",
        before="2 * array.offset",
        after="0",
    ),
    Mutant(
        name="slices are read from the first row",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_every_type.py::"
            "test_key_hash_of_every_type_in_every_form_is_one_and_changes_nothing"
        ),
        file="replica/rows/buffers.py",
        function="decimal_words",
        before="2 * array.offset",
        after="0",
    ),
    Mutant(
        name="offsets are all that the buffer holds",
        rows="IN-01",
        test=(
            "tests/unit/tablet/test_tablet_every_type.py::"
            "test_batch_whose_buffers_end_mid_value_is_applied_like_any_other"
        ),
        file="replica/rows/buffers.py",
        function="_view",
        before="dtype, count=count, offset=skip * dtype.itemsize)",
        after="dtype)[skip : skip + count]",
    ),
    Mutant(
        name="views are writable",
        rows="IN-01",
        test="tests/unit/rows/test_rows_every_type.py::test_views_of_arrow_memory_cannot_be_written_through",
        file="replica/rows/buffers.py",
        function="_locked",
        before="array.flags.writeable = False",
        after="array.flags.writeable = array.flags.writeable",
    ),
    Mutant(
        name="columns are not told apart",
        rows="IN-04",
        test="tests/unit/rows/test_rows_checksum.py::test_checksum_tells_rows_apart",
        file="replica/rows/checksum.py",
        function="sum_of_rows",
        before="np.array(column_ids, dtype=np.uint64)",
        after="np.full(len(column_ids), 7, dtype=np.uint64)",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-04",
            test="tests/unit/rows/test_rows_checksum.py::" + test,
            file="replica/rows/" + file,
            function=function,
            before=before,
            after=after,
        )
        for name, test, file, function, before, after in (
            (
                "joined columns count as the first ones",
                "test_checksum_is_the_defined_one_however_cells_are_put_together",
                "checksum.py",
                "sum_of_rows",
                "salts[places]",
                "salts[: len(places)]",
            ),
            (
                "lengths of texts count otherwise",
                "test_checksum_never_changes_within_a_definition",
                "checksum.py",
                "",
                "_LENGTH = np.uint64(0xA24BAED4963EE407)",
                "_LENGTH = np.uint64(0xA24BAED4963EE409)",
            ),
            (
                "halves of a sum run into each other",
                "test_sums_of_two_parts_add_up_in_each_half",
                "checksum.py",
                "RowSum.__add__",
                "low & _MASK | (high & _MASK) << 64",
                "low + (high << 64)",
            ),
            (
                "bytes of the next text count",
                "test_checksum_is_the_defined_one_however_cells_are_put_together",
                "checksum.py",
                "_sums_of_short",
                "word[:, -1] &= tails",
                "word[:, -1] &= word[:, -1]",
            ),
            (
                "words after the buffer are read",
                "test_checksum_is_the_defined_one_however_cells_are_put_together",
                "buffers.py",
                "words_fit",
                "- 8 * words",
                "- 8 * words + 8",
            ),
            (
                "each column is summed alone",
                "test_checksum_handles_many_cells_at_a_time",
                "checksum.py",
                "_groups",
                "_CELLS_TOGETHER // part.num_rows",
                "part.num_rows // part.num_rows",
            ),
            (
                "columns of a long row are copied to join them",
                "test_checksum_handles_many_cells_at_a_time",
                "checksum.py",
                "_groups",
                "if part.num_rows > 1 else 1",
                "if part.num_rows > 0 else 1",
            ),
            (
                "all texts are padded",
                "test_checksum_handles_many_cells_at_a_time",
                "checksum.py",
                "_add_short",
                "if end - begin >= _GATHERED_MIN:",
                "if end - begin < 0:",
            ),
        )
    ),
    Mutant(
        name="row depends on its place",
        rows="IN-04",
        test="tests/unit/rows/test_rows_checksum.py::test_checksum_does_not_depend_on_the_order_of_rows_and_columns",
        file="replica/rows/checksum.py",
        function="sum_of_rows",
        before="rows: U64 = np.zeros(part.num_rows, dtype=np.uint64)",
        after="rows: U64 = np.arange(part.num_rows, dtype=np.uint64)",
    ),
    Mutant(
        name="null counts as a value",
        rows="IN-04",
        test="tests/unit/rows/test_rows_checksum.py::test_checksum_tells_rows_apart",
        file="replica/rows/checksum.py",
        function="_cells",
        before="if column.null_count:",
        after="if column.null_count > column.null_count:",
    ),
    Mutant(
        name="each value is read alone",
        rows="IN-04",
        test=(
            "tests/unit/rows/test_rows_checksum.py::test_checksum_costs_as_much_as_there_are_bytes_whatever_is_longest"
        ),
        file="replica/rows/checksum.py",
        function="_add_padded",
        before='end = int(np.searchsorted(until, done + _WORDS_TOGETHER, side="right"))',
        after='end = int(np.searchsorted(until, done + 1, side="right"))',
    ),
    Mutant(
        name="pieces of a long value change places",
        rows="IN-04",
        test="tests/unit/rows/test_rows_checksum.py::test_checksum_tells_rows_apart",
        file="replica/rows/checksum.py",
        function="_sum_of_long",
        before="word += np.uint64((at - start) // 8 * _PLACE & _MASK)",
        after="word += np.uint64(0 * (at - start) // 8 * _PLACE & _MASK)",
    ),
    Mutant(
        name="conditions without number",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_conditions_of_a_scan_are_bounded_together",
        file="replica/rows/condition_bounds.py",
        function="ConditionsSize._beyond",
        before='("conditions", self.conditions, limits.SCAN_PREDICATES_MAX),',
        after='("conditions", self.conditions, 10**9),',
    ),
    Mutant(
        name="client measures texts by characters",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_what_a_client_measures_is_no_less_than_what_a_server_does",
        file="replica/rows/condition_bounds.py",
        function="_value_bytes",
        before='(len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))',
        after="len(value",
    ),
    Mutant(
        name="a key that is too long is hashed whole, in a write",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_apply_costs.py::test_no_more_of_a_key_is_hashed_than_a_key_may_have[a-write]",
        file="replica/rows/hashing.py",
        function="_Room.take",
        before="if self._all <= limits.KEY_SIZE_BYTES_MAX:  # then no row has more",
        after="if True:",
    ),
    Mutant(
        name="a key that is too long is hashed whole, in a get",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_apply_costs.py::test_no_more_of_a_key_is_hashed_than_a_key_may_have[a-get]",
        file="replica/rows/hashing.py",
        function="_Room.take",
        before="if self._all <= limits.KEY_SIZE_BYTES_MAX:  # then no row has more",
        after="if True:",
    ),
    Mutant(
        name="a key that is too long is hashed whole, in rows that are sent to tablets",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_apply_costs.py::test_no_more_of_a_key_is_hashed_than_a_key_may_have[rows-that-are-sent-to-tablets]",
        file="replica/rows/hashing.py",
        function="_Room.take",
        before="if self._all <= limits.KEY_SIZE_BYTES_MAX:  # then no row has more",
        after="if True:",
    ),
    Mutant(
        name="a key that is too long is hashed whole, in a condition",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_apply_costs.py::test_no_more_of_a_key_is_hashed_than_a_key_may_have[a-condition]",
        file="replica/rows/hashing.py",
        function="_Room.take",
        before="if self._all <= limits.KEY_SIZE_BYTES_MAX:  # then no row has more",
        after="if True:",
    ),
    Mutant(
        name="a long key beside a longer one is hashed in part",
        rows="IN-01",
        test="tests/unit/rows/test_rows_hash.py::test_every_byte_of_a_key_that_can_be_stored_counts",
        file="replica/rows/hashing.py",
        function="_Room.take",
        before="limits.KEY_SIZE_BYTES_MAX - before",
        after="limits.KEY_SIZE_BYTES_MAX - 8 - before",
    ),
    Mutant(
        name="each column of a key has the whole room",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_apply_costs.py::test_no_more_of_a_key_is_hashed_than_a_key_may_have[a-write]",
        file="replica/rows/hashing.py",
        function="_Room.take",
        before="limits.KEY_SIZE_BYTES_MAX - before",
        after="limits.KEY_SIZE_BYTES_MAX",
    ),
    Mutant(
        name="hash writes into a row of a client",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_every_type.py::"
            "test_key_hash_of_every_type_in_every_form_is_one_and_changes_nothing"
        ),
        file="replica/rows/hashing.py",
        function="_hash_column",
        before="low = mix_in_place(words[:, 0].copy())",
        after="low = mix_in_place(np.ascontiguousarray(words[:, 0]))",
    ),
    Mutant(
        name="hash writes into the keys",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_every_type.py::"
            "test_key_hash_of_every_type_in_every_form_is_one_and_changes_nothing"
        ),
        file="replica/rows/hashing.py",
        function="_hash_column",
        before="low = mix_in_place(words[:, 0].copy())",
        after="low = mix_in_place(np.ascontiguousarray(words[:, 0]))",
    ),
    Mutant(
        name="second list on a column counts alone",
        rows="RD-01",
        test="tests/unit/rows/test_rows_key_terms.py::test_terms_together_mean_what_all_of_them_mean",
        file="replica/rows/key_terms.py",
        function="intersected",
        before="set(values) if listed is None else listed.intersection(values)",
        after="set(values)",
    ),
    Mutant(
        name="wider of two equal bounds counts",
        rows="RD-01",
        test="tests/unit/rows/test_rows_key_terms.py::test_terms_together_mean_what_all_of_them_mean",
        file="replica/rows/key_terms.py",
        function="intersected",
        before='_above(high.values[0], values[0], op == "<")',
        after='_above(high.values[0], values[0], op == "<=")',
    ),
    Mutant(
        name="bounds do not shorten a list",
        rows="RD-01",
        test="tests/unit/rows/test_rows_key_terms.py::test_terms_together_mean_what_all_of_them_mean",
        file="replica/rows/key_terms.py",
        function="intersected",
        before="all(_BOUNDS[op](value, of[0]) for op, of in bounds)",
        after="all(_BOUNDS[op](value, of[0]) for op, of in bounds[:1])",
    ),
    Mutant(
        name="terms are made for a caller that left",
        rows="IN-60",
        test="tests/unit/rows/test_rows_key_terms.py::test_terms_of_many_conditions_are_made_until_the_caller_leaves",
        file="replica/rows/predicate.py",
        function="Conditions.terms",
        before="""
            stop()
        """,
        after="",
    ),
    Mutant(
        name="long list leaves its end out",
        rows="RD-01",
        test="tests/unit/tablet/test_tablet_key_ranges.py::test_conditions_on_a_key_of_any_type_find_what_a_filter_finds",
        file="replica/rows/predicate.py",
        function="_Prepared.terms",
        before='Term("<=", [sortable(ends["max"])])',
        after='Term("<", [sortable(ends["max"])])',
    ),
    Mutant(
        name="value that no row can have says where rows are",
        rows="RD-01",
        test=(
            "tests/unit/rows/test_rows_key_terms.py::"
            "test_list_with_a_value_of_another_type_says_nothing_of_where_rows_are"
        ),
        file="replica/rows/predicate.py",
        function="_Prepared.terms",
        before='if op == "in" and not self._scalars:',
        after='if op == "in":',
    ),
    Mutant(
        name="mixed splits raise",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_range_splits_that_are_no_values_are_refused",
        file="replica/rows/partition.py",
        function="PartitionSpec.__post_init__",
        before="except (TypeError, ArithmeticError) as e:",
        after="except ArithmeticError as e:",
    ),
    Mutant(
        name="odd values of each list",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_list_of_values_that_the_column_cannot_hold_is_bounded",
        file="replica/rows/predicate.py",
        function="Conditions.__init__",
        before="odd -= self._prepared[-1].scalars_listed",
        after="odd -= 0",
    ),
    Mutant(
        name="short batch loses values",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_long_list_finds_the_same_rows_in_short_and_long_batches",
        file="replica/rows/predicate.py",
        function="_Prepared._in_mask",
        before="values = values.filter(pc.is_in(values, value_set=column))",
        after="values = values[: len(column)]",
    ),
    Mutant(
        name="values are made ready for nobody",
        rows="IN-62",
        test="tests/unit/rows/test_rows_value_list.py::test_long_list_is_made_ready_in_steps_that_end_with_the_caller",
        file="replica/rows/predicate.py",
        function="_listed",
        before="""
            stop()
        """,
        after="",
    ),
    Mutant(
        name="odd values without number",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_list_of_values_that_the_column_cannot_hold_is_bounded",
        file="replica/rows/predicate.py",
        function="_listed",
        before="if len(odd) > odd_max:",
        after="if len(odd) > 10**9:",
    ),
    Mutant(
        name="decimals without precision",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_description_of_a_table_has_its_decimals_and_its_ranges",
        file="replica/rows/types.py",
        function="Column.type_text",
        before="self.type is ColumnType.DECIMAL",
        after="not self.name",
    ),
    Mutant(
        name="decimal is no number",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_value_as_json_that_the_type_cannot_hold_is_refused",
        file="replica/rows/conversion.py",
        function="check_decimals",
        before="if not value.is_finite():",
        after="if value.is_snan():",
    ),
    Mutant(
        name="rows of a list are not bounded",
        rows="IN-61",
        test=(
            "tests/unit/rows/test_rows_value_list.py::"
            "test_encoding_that_is_not_needed_is_refused_before_it_costs_anything"
        ),
        file="replica/rows/value_list.py",
        function="read_values",
        before="if not 0 <= rows <= limits.SCAN_VALUES_MAX:",
        after="if rows < 0:",
    ),
    Mutant(
        name="values are not validated",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_mutated_message_is_read_or_refused_within_its_bound",
        file="replica/rows/value_list.py",
        function="read_values",
        before="""
            array.validate(full=True)
        """,
        after="",
    ),
    Mutant(
        name="nested values are taken",
        rows="IN-61",
        test=(
            "tests/unit/rows/test_rows_value_list.py::"
            "test_encoding_that_is_not_needed_is_refused_before_it_costs_anything"
        ),
        file="replica/rows/value_list.py",
        function="_column_type",
        before="if field.count(6):",
        after="if field.count(6) > 10:",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-01",
            test="tests/unit/api/test_api_conditions.py::test_condition_on_numbers_finds_what_python_finds",
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, file, function, before, after in (
            (
                "integer of a condition is rounded",
                "replica/rows/exact_conditions.py",
                "_around",
                "return math.floor(value), math.ceil(value)",
                "return round(value), round(value)",
            ),
            (
                "decimal of a condition is rounded up",
                "replica/rows/exact_conditions.py",
                "_around",
                "number.quantize(unit, decimal.ROUND_FLOOR, _DIGITS)",
                "number.quantize(unit, decimal.ROUND_UP, _DIGITS)",
            ),
            (
                "float of a condition is the nearest",
                "replica/rows/exact_conditions.py",
                "_floats_around",
                "found if found == value else",
                "found if found != value else",
            ),
            (
                "value that no row has is a bound",
                "replica/rows/exact_conditions.py",
                "exact",
                'if op == "!=":',
                'if op == "=":',
            ),
            (
                "zeros of a list are bits",
                "replica/rows/predicate.py",
                "_Prepared.__init__",
                "if pa.types.is_floating(kind) and",
                "if pa.types.is_integer(kind) and",
            ),
            (
                "number of a text is a float",
                "pipeline/source/where.py",
                "_Parser._value",
                "float if column.type in _FLOATS else decimal.Decimal",
                "float",
            ),
            (
                "condition is sent as it came",
                "replica/api/expressions.py",
                "bound",
                "return exact_predicate(Predicate(given.column, given.op, values), column.arrow_type)",
                "return Predicate(given.column, given.op, values)",
            ),
        )
    ),
    *(
        Mutant(
            name=name,
            rows="IN-82",
            test=(
                "tests/unit/api/test_api_conditions.py::"
                "test_condition_on_times_has_the_value_that_was_given_or_is_refused"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, file, function, before, after in (
            ("nanoseconds of a text are cut", "replica/rows/types.py", "time_of_text", "0*[1-9]", "0*[A-Z]"),
            (
                "nanoseconds of numpy are a number",
                "replica/api/expressions.py",
                "_as_type",
                "str | bytes | np.datetime64 | np.timedelta64",
                "str | bytes",
            ),
        )
    ),
    Mutant(
        name="whole numbers compare with a float as floats",
        rows="none",
        test="tests/unit/rows/test_rows_schema.py::test_whole_numbers_compare_with_a_float_exactly",
        file="replica/rows/predicate.py",
        function="_Prepared.__init__",
        before="predicate = exact_predicate(predicate, kind)",
        after="pass",
    ),
    Mutant(
        name="lists of floats are compared as floats",
        rows="none",
        test="tests/unit/rows/test_rows_schema.py::test_whole_numbers_are_found_in_a_list_of_floats",
        file="replica/rows/predicate.py",
        function="_split",
        before="if pa.types.is_integer(kind):",
        after="if not values:",
    ),
    Mutant(
        name="decimal of endless places is taken",
        rows="IN-60",
        test="tests/unit/rows/test_rows_schema.py::test_decimal_of_endless_places_is_refused_before_arrow_sees_it",
        file="replica/rows/conversion.py",
        function="check_decimals",
        before="exponent < -DECIMAL_DIGITS_MAX",
        after="exponent < -(1 << 40)",
    ),
    Mutant(
        name="stored number of another type is taken",
        rows="IN-60",
        test="tests/unit/rows/test_rows_schema.py::test_stored_schema_with_another_type_in_a_field_is_refused",
        file="replica/rows/types.py",
        function="json_whole",
        before="type(value) is not int or ",
        after="isinstance(value, int) and ",
    ),
    Mutant(
        name="stored name need not be text",
        rows="IN-60",
        test="tests/unit/rows/test_rows_schema.py::test_stored_schema_with_another_type_in_a_field_is_refused",
        file="replica/rows/types.py",
        function="json_text",
        before="value.encode()",
        after="pass",
    ),
    Mutant(
        name="float is cut to an integer",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[int8]"
        ),
        file="replica/rows/conversion.py",
        function="_of_python",
        before="if groups <= _DIRECT.get(family, set()) and",
        after='if groups <= _DIRECT.get(family, set()) | ({float} if family == "integer" else set()) and',
    ),
    Mutant(
        name="decimal is cut to an integer",
        rows="IN-01",
        test=("tests/unit/rows/test_rows_conversion.py::test_condition_compares_the_value_that_was_given"),
        file="replica/rows/conversion.py",
        function="_of_python",
        before="if groups <= _DIRECT.get(family, set()) and",
        after='if groups <= _DIRECT.get(family, set()) | ({decimal.Decimal} if family == "integer" else set()) and',
    ),
    Mutant(
        name="finite float becomes infinite",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[float]"
        ),
        file="replica/rows/conversion.py",
        function="_check_range",
        before="if pc.any(",
        after="if False and pc.any(",
    ),
    Mutant(
        name="datetime loses its time in a date",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[date]"
        ),
        file="replica/rows/conversion.py",
        function="_cast",
        before="if lossy and",
        after="if not lossy and",
    ),
    Mutant(
        name="number is a time",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[timestamp]"
        ),
        file="replica/rows/conversion.py",
        function="_cast",
        before="if source != target and source not in",
        after='if target != "time" and source != target and source not in',
    ),
    Mutant(
        name="nanoseconds of pandas are dropped",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[timestamp]"
        ),
        file="replica/rows/conversion.py",
        function="_of_pandas",
        before='if getattr(value, "nanosecond", 0):',
        after="if False:",
    ),
    Mutant(
        name="nanoseconds of numpy are dropped",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[timestamp]"
        ),
        file="replica/rows/conversion.py",
        function="_of_numpy",
        before="if whole != value and",
        after="if False and",
    ),
    Mutant(
        name="bad value of the second half is that of the first",
        rows="IN-02",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_one_bad_value_among_many_is_found_and_the_others_are_mixed_as_they_come"
        ),
        file="replica/rows/conversion.py",
        function="_searched",
        before="convert, first, row + half",
        after="convert, first, row",
    ),
    Mutant(
        name="integer needs nineteen digits of a decimal",
        rows="IN-02",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_one_bad_value_among_many_is_found_and_the_others_are_mixed_as_they_come"
        ),
        file="replica/rows/conversion.py",
        function="_cast",
        before='(source, target) == ("integer", "decimal")',
        after="False",
    ),
    Mutant(
        name="default with a fraction is taken",
        rows="IN-82",
        test=("tests/unit/rows/test_rows_conversion.py::test_default_and_split_are_held_exactly_or_refused"),
        file="replica/api/definitions.py",
        function="_column",
        before='replace(kind, default=_exactly("the default", kind.default, kind))',
        after="kind",
    ),
    Mutant(
        name="splits of a table of too many tablets are read",
        rows="IN-60",
        test=(
            "tests/unit/master/test_master_loop_steps.py::"
            "test_table_of_too_many_ranges_is_refused_in_a_short_step_of_the_loop"
        ),
        file="replica/master/requests/conversions.py",
        function="checked_table",
        before="if tablets > limits.TABLETS_PER_TABLE_MAX:",
        after="if description_from_pb(out).partition.tablets > limits.TABLETS_PER_TABLE_MAX:",
    ),
    Mutant(
        name="ten thousand splits are read",
        rows="IN-60",
        test=(
            "tests/unit/master/test_master_loop_steps.py::"
            "test_table_of_too_many_ranges_is_refused_in_a_short_step_of_the_loop"
        ),
        file="replica/types/limits.py",
        before='"PartitionSpec.range_splits_json": TABLETS_PER_TABLE_MAX - 1,',
        after='"PartitionSpec.range_splits_json": 10_000,',
    ),
    Mutant(
        name="a server builds a table's tablets to count them",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_requests_of_tablet_servers_cost_no_more_than_is_stated",
        file="replica/rows/partition.py",
        function="PartitionSpec.tablets",
        before="return self.buckets * (len(self.range_splits) + 1)",
        after="return len(self.partitions)",
    ),
    Mutant(
        name="tablet of a bucket that the table has not",
        rows="TC-69",
        test=(
            "tests/unit/server/test_server_requests_table.py::"
            "test_misaddressed_stale_and_repeated_calls_leave_everything_as_it_was"
        ),
        file="replica/server/requests/creations.py",
        function="checked_creation",
        before="table.partition.check_position(request.bucket, request.range_pos)",
        after="pass",
    ),
    Mutant(
        name="last range is refused",
        rows="IN-82",
        test=("tests/unit/rows/test_rows_route.py::test_tablets_are_counted_and_each_has_a_bucket_and_a_range"),
        file="replica/rows/partition.py",
        function="PartitionSpec.check_position",
        before="0 <= range_pos <= len(self.range_splits)",
        after="0 <= range_pos < len(self.range_splits)",
    ),
    Mutant(
        name="nested values are read by arrow",
        test="tests/unit/rows/test_rows_conversion.py::test_nested_value_is_refused_before_arrow_reads_it",
        file="replica/rows/conversion.py",
        function="_of_python",
        before="if nested := [t.__name__ for t in types if issubclass(t, _NESTED)]:",
        after="if nested := []:",
    ),
)
